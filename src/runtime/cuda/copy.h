// src/runtime/cuda/copy.h: kernels that copy their input, unchanged or in another storage format.
#pragma once

#include "kernels/cuda/convert.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {

/// y = x for input 0 and output 0 with equally many elements. Does nothing if both share their
/// memory.
inline std::unique_ptr<Kernel> make_copy(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo &x = input_info(g, n, 0), &y = output_info(g, n, 0);
  if (x.storage == y.storage) {
    const auto bytes = static_cast<size_t>(x.stored_bytes());
    return make_kernel([bytes, stream = device.stream()](const KernelArgs& a) {
      if (a.inputs[0] == a.outputs[0]) return;
      check(cudaMemcpyAsync(a.outputs[0], a.inputs[0], bytes, cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync on the GPU");
    });
  }
  return make_kernel([o = Operands(g, n), count = x.type.shape.elements(),
                      stream = device.stream()](const KernelArgs& a) {
    kernels::cuda::convert(count, o.in(a, 0), o.out(a, 0), stream);
  });
}

}  // namespace trainyard::cuda
