// kernels/cpu/onednn.h: oneDNN primitives prepared once and run without looking anything up.
//
// Every primitive is single-threaded; a kernel runs one per thread of its Team, each on its slice.
// A prepared primitive owns its memory descriptors; run() only swaps data pointers in, and swaps
// none while they stay the same, which is always the case in a bound program. Scratchpads come from
// the caller's workspace (scratchpad_mode::user).
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <initializer_list>
#include <vector>

#include "kernels/alignment.h"

namespace trainyard::kernels::cpu {

const dnnl::engine& onednn_engine();

/// oneDNN asks OpenMP for its team when a primitive is made and again when it runs: it shall be 1.
/// Restores the caller's setting.
class SingleThreadScope {
 public:
  SingleThreadScope() : saved_(omp_get_max_threads()) {
    if (saved_ != 1) omp_set_num_threads(1);
  }
  ~SingleThreadScope() {
    if (saved_ != 1) omp_set_num_threads(saved_);
  }
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int saved_;
};

/// Cuts one workspace into aligned pieces.
class WorkspaceLayout {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = size_bytes_;
    size_bytes_ += round_up(bytes, kHostAlignment);
    return offset;
  }
  int64_t add(const dnnl::memory::desc& desc) { return add(static_cast<int64_t>(desc.get_size())); }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  int64_t size_bytes_ = 0;
};

inline void* at_offset(void* workspace, int64_t offset) {
  return static_cast<std::byte*>(workspace) + offset;
}

class PreparedPrimitive {
 public:
  struct Arg {
    int index;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };

  PreparedPrimitive() = default;
  PreparedPrimitive(const dnnl::primitive& primitive, std::initializer_list<Arg> args);

  explicit operator bool() const { return static_cast<bool>(primitive_.get(true)); }
  /// Pointers in the order of the constructor's args. Arguments of size 0 take nullptr. Safe beside
  /// other primitives on other threads.
  void run(std::initializer_list<const void*> data);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<const void*> bound_;
  std::vector<dnnl_exec_arg_t> args_;
};

/// Copies between two memory formats of one logical tensor; empty if the formats are equal.
PreparedPrimitive prepare_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

/// Scratchpads in the caller's workspace.
dnnl::primitive_attr user_scratchpad();

}  // namespace trainyard::kernels::cpu
