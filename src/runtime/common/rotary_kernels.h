// src/runtime/common/rotary_kernels.h: rotary position embeddings, for every backend (adapter.h).
#pragma once

#include "kernels/rotary.h"
#include "src/runtime/common/adapter.h"

namespace trainyard {

template <typename Context>
std::unique_ptr<Kernel> make_rotary_tables(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& cos = output_info(g, n, 0);
  return with_operands(context, g, n, cos, [&]<typename O>(O o) {
    using T = typename O::Number;
    kernels::RotaryTableParams p;
    p.frequencies = n.attributes.get_floats("frequencies", {});
    p.factor = n.attributes.get_float("factor", 1);
    p.rows = cos.type.shape.elements() / std::ssize(p.frequencies);
    return make_kernel([o, p = std::move(p), given = has_input(n, 0)](const KernelArgs& a) {
      rotary_tables(p, given ? a.in<int32_t>(0) : nullptr, a.out<T>(0), a.out<T>(1), o.run(a));
    });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_rotary(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&]<typename O>(O o) {
    const Shape &x = input_info(g, n, 0).type.shape, &cos = input_info(g, n, 1).type.shape;
    kernels::RotaryDims d{};
    d.rows = x[0] * x[1];
    d.H = n.attributes.get_int("num_heads", 1);
    d.D = x[2] / d.H;
    d.pairs = cos[cos.rank() - 1];
    const bool given = has_input(n, 3);
    // Without positions, row t of a sequence reads the table's row t, or a row of its own.
    d.table_rows = given || cos.rank() == 3 ? cos.elements() / d.pairs : x[1];
    d.interleaved = n.attributes.get_int("interleaved", 0) != 0;
    d.inverse = n.attributes.get_int("inverse", 0) != 0;
    return make_kernel([o, d, given](const KernelArgs& a) {
      const kernels::RotaryOperands<typename O::Type> operands{
          .x = o.in(a, 0),
          .cos = o.number(a, 1),
          .sin = o.number(a, 2),
          .positions = given ? a.in<int32_t>(3) : nullptr,
          .y = o.out(a, 0)};
      rotary(d, operands, o.run(a));
    });
  });
}

}  // namespace trainyard
