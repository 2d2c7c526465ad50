"""What a forward does, written down: operations, dataflow, merged traces, buffer writes."""
