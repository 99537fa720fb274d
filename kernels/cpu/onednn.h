// kernels/cpu/onednn.h: oneDNN primitives that are prepared once, so that running them needs no
// lookup.
//
// Every primitive is single-threaded; a kernel runs one primitive per thread of its Team, each on
// its slice. A prepared primitive owns its memory descriptors. run() only sets the data pointers
// that have changed since the last call; in a bound program none change. Scratchpads are in the
// caller's workspace (scratchpad_mode::user).
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

/// Sets OpenMP's thread count to 1, since oneDNN reads it when a primitive is created and again
/// when it runs. The destructor restores the caller's setting.
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

/// Divides one workspace into aligned pieces.
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
  /// Runs the primitive. `data` has the pointers in the order of the constructor's args; arguments
  /// of size 0 take nullptr. Other primitives may run at the same time on other threads.
  void run(std::initializer_list<const void*> data);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<const void*> bound_;
  std::vector<dnnl_exec_arg_t> args_;
};

/// Returns a primitive that copies a tensor from one memory format to another; empty if the formats
/// are equal.
PreparedPrimitive prepare_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

/// Returns the attribute that places a primitive's scratchpad in the caller's workspace.
dnnl::primitive_attr user_scratchpad();

}  // namespace trainyard::kernels::cpu
