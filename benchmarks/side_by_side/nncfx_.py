"""nncfx: filters pruned to half of the MACs, fine-tuned, thinned, int8, timed."""

from task import batches, example, model, report, train

# tool
import nncfx

params = {"pruning_flops_target": 0.5}
config = {"compression": {"algorithm": "filter_pruning", "pruning_init": 0.5, "params": params}}
controller, network = nncfx.create_compressed_model(model, config, example)
train(network)
small = nncfx.quantize(nncfx.thin(network).model, batches[:8])
file = nncfx.export_onnx(small, "nncfx.onnx", example)
timing = nncfx.benchmark(file, example, threads=1)
# end
report("nncfx.onnx", timing.median_ms)
