// src/runtime/cuda/nvtx_range.h: names ranges of submitted work for Nsight and other tools. NVTX is
// header-only; without a tool, a range costs two calls that return immediately.
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
