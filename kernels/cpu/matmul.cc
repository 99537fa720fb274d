#include "kernels/cpu/matmul.h"

#include <string_view>

namespace trainyard::kernels::cpu {
namespace {

// oneDNN's first choice (brgemm) reads a b that lies row by row where it is. Rows of several kB
// that no cache holds make that slow; its older kernel copies b into panels first (2048 x 384 times
// 384 x 1536: 67 GFLOP/s as it lies, 122 in panels; of 1536 x 384: 99 and 110).
bool wants_panels(const MatmulDims& d) {
  return d.b.column == 1 && d.b.row >= 512 && d.M >= 128 && d.N >= 256 && d.K >= 128;
}

void choose_panels(dnnl::matmul::primitive_desc& pd) {
  while (std::string_view(pd.impl_info_str()).starts_with("brg") && pd.next_impl()) {
  }
}

}  // namespace

// Plain formats everywhere: bringing a weight into oneDNN's own format costs as much as it saves
// when it changes every step (64 x 784 x 512, 2 threads: product 139 us plain, 123 us packed,
// packing 77 us).
Matmul::Matmul(const MatmulDims& d) {
  using Desc = dnnl::memory::desc;
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  const SingleThreadScope scope;
  const Desc a({d.M, d.K}, kF32, dnnl::memory::dims{d.a.row, d.a.column});
  const Desc b({d.K, d.N}, kF32, dnnl::memory::dims{d.b.row, d.b.column});
  const Desc c({d.M, d.N}, kF32, dnnl::memory::dims{d.c.row, d.c.column});
  Desc bias;
  if (d.bias) bias = Desc({1, d.N}, kF32, dnnl::memory::format_tag::ab);
  const auto desc = d.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  dnnl::primitive_attr attributes = user_scratchpad();
  if (d.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::primitive_desc pd(desc, attributes, onednn_engine());
  if (wants_panels(d)) choose_panels(pd);
  workspace_.add(pd.scratchpad_desc());
  primitive_ = PreparedPrimitive(dnnl::matmul(pd), {{DNNL_ARG_SRC, a},
                                                    {DNNL_ARG_WEIGHTS, b},
                                                    {DNNL_ARG_BIAS, bias},
                                                    {DNNL_ARG_DST, c},
                                                    {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
}

}  // namespace trainyard::kernels::cpu
