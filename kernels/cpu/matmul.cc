#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <string_view>

#include "kernels/gemm.h"

namespace trainyard::kernels::cpu {
namespace {

// oneDNN's first choice (brgemm) reads a row-major b in place, which is slow if its rows have
// several kB and b fits no cache. An older kernel of oneDNN first copies b into panels (2048 x 384
// times 384 x 1536: 67 GFLOP/s in place, 122 with panels; times 1536 x 384: 99 and 110).
bool wants_panels(const MatmulDims& d) {
  return !d.bf16 && d.b.column == 1 && d.b.row >= 512 && d.M >= 128 && d.N >= 256 && d.K >= 128;
}

void choose_panels(dnnl::matmul::primitive_desc& pd) {
  while (std::string_view(pd.impl_info_str()).starts_with("brg") && pd.next_impl()) {
  }
}

bool has_avx512() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa >= dnnl::cpu_isa::avx512_mic && isa != dnnl::cpu_isa::avx2_vnni;
}

// oneDNN 2.6's AVX2 product takes six rows at a time, and sums a remainder of up to three rows in
// another order; for some sizes above 72 it also does so for rows in the middle. Sizes without such
// rows are those up to 72 whose remainder modulo 6 is 0, 4 or 5, and 192
// (tests/kernels/matmul_test.cc). Blocks of 192 rows are not slower (4096 x 784 times 784 x 512 on
// one core of an AMD EPYC 7003: 78 ms in blocks, 80 ms as one product).
int64_t block_rows_of(const MatmulDims& d) {
  constexpr int64_t kSmallest = 64, kLargestOfSixes = 72, kLargest = 192;
  if (!d.rows_alike || d.M < kSmallest || d.M == kLargest || has_avx512()) return d.M;
  if (d.M > kLargest) return kLargest;
  for (int64_t blocks = (d.M + kLargestOfSixes - 1) / kLargestOfSixes;; ++blocks) {
    const int64_t rows = (d.M + blocks - 1) / blocks, rest = rows % 6;
    const int64_t suited = rest >= 1 && rest <= 3 ? rows - rest + 4 : rows;
    if (suited <= d.M) return suited;
  }
}

constexpr int64_t bytes_of(bool bf16) { return bf16 ? 2 : 4; }

}  // namespace

bool multiplies_bf16() {
  static const bool can = [] {
    const auto isa = static_cast<int>(dnnl::get_effective_cpu_isa());
    return isa >= static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  }();
  return can;
}

// All operands have plain formats: converting a weight that changes every step into oneDNN's own
// format costs as much time as it saves (64 x 784 x 512, 2 threads: product 139 us plain, 123 us
// packed, packing 77 us).
Matmul::Matmul(const MatmulDims& d)
    : rows_(d.M),
      block_rows_(block_rows_of(d)),
      a_row_bytes_(d.a.row * bytes_of(d.bf16)),
      c_row_bytes_(d.c.row * bytes_of(d.c_bf16)) {
  using Desc = dnnl::memory::desc;
  constexpr auto kF32 = dnnl::memory::data_type::f32, kBf16 = dnnl::memory::data_type::bf16;
  const auto factor = d.bf16 ? kBf16 : kF32, result = d.c_bf16 ? kBf16 : kF32;
  const SingleThreadScope scope;
  const Desc a({block_rows_, d.K}, factor, dnnl::memory::dims{d.a.row, d.a.column});
  const Desc b({d.K, d.N}, factor, dnnl::memory::dims{d.b.row, d.b.column});
  const Desc c({block_rows_, d.N}, result, dnnl::memory::dims{d.c.row, d.c.column});
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

void Matmul::run(const void* a, const void* b, const float* bias, void* c, void* workspace) {
  for (int64_t row = 0; row < rows_; row += block_rows_) {
    // The last block ends with the last row, so it may overlap the block before; both compute the
    // same bits for the shared rows.
    const int64_t first = std::min(row, rows_ - block_rows_);
    primitive_.run({static_cast<const std::byte*>(a) + first * a_row_bytes_, b, bias,
                    static_cast<std::byte*>(c) + first * c_row_bytes_, workspace});
  }
}

}  // namespace trainyard::kernels::cpu
