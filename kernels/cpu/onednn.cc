#include "kernels/cpu/onednn.h"

namespace trainyard::kernels::cpu {

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

PreparedPrimitive::PreparedPrimitive(const dnnl::primitive& primitive,
                                     std::initializer_list<Arg> args)
    : primitive_(primitive), stream_(onednn_engine()) {
  for (const Arg& arg : args) {
    // nullptr means DNNL_MEMORY_NONE; run() sets the data pointer.
    memories_.emplace_back(arg.desc, onednn_engine(), nullptr);
    bound_.push_back(nullptr);
    if (arg.desc.get_size() > 0) args_.push_back({arg.index, memories_.back().get()});
  }
}

void PreparedPrimitive::run(std::initializer_list<const void*> data) {
  const SingleThreadScope scope;
  size_t i = 0;
  for (const void* pointer : data) {
    if (pointer != bound_[i]) {
      memories_[i].set_data_handle(const_cast<void*>(pointer), stream_);
      bound_[i] = pointer;
    }
    ++i;
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                 static_cast<int>(args_.size()), args_.data()),
                          "could not execute a oneDNN primitive");
}

PreparedPrimitive prepare_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  if (from == to) return {};
  const SingleThreadScope scope;
  const dnnl::reorder::primitive_desc desc(onednn_engine(), from, onednn_engine(), to,
                                           user_scratchpad());
  // Reorders from f32 to f32 need no scratchpad; if one did, running it would throw an error.
  return PreparedPrimitive(dnnl::reorder(desc), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

}  // namespace trainyard::kernels::cpu
