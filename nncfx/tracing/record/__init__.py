"""Record a forward: operations, dataflow, merged traces, buffer writes."""
