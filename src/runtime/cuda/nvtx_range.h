// src/runtime/cuda/nvtx_range.h: names for what the host submits, for Nsight and other tools. NVTX
// is headers alone; where no tool listens, a range costs two calls that return at once.
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace trainyard::cuda {

class NvtxRange {
 public:
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace trainyard::cuda
