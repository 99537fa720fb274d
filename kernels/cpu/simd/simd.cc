#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/activation.h"
#include "kernels/cpu/simd/arithmetic.h"
#include "kernels/cpu/simd/attention.h"
#include "kernels/cpu/simd/columns.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/embedding_bag.h"
#include "kernels/cpu/simd/few_rows.h"
#include "kernels/cpu/simd/recurrent.h"
#include "kernels/cpu/simd/reduce.h"
#include "kernels/cpu/simd/rotary.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/strided.h"
#include "kernels/cpu/simd/update.h"

#include <cstdlib>
#include <cstring>

namespace trainyard::kernels::cpu {
namespace {

Isa detect() {
  __builtin_cpu_init();
  Isa isa = Isa::kBaseline;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa = Isa::kAvx2;
  if (isa == Isa::kAvx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd")) {
    isa = Isa::kAvx512;
  }
  const char* wish = std::getenv("TRAINYARD_ISA");
  if (wish != nullptr && std::strcmp(wish, "baseline") == 0) return Isa::kBaseline;
  if (wish != nullptr && std::strcmp(wish, "avx2") == 0 && isa != Isa::kBaseline) return Isa::kAvx2;
  return isa;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

#define TRAINYARD_SELECT(Table, name) \
  const Table& name##_baseline();     \
  const Table& name##_avx2();         \
  const Table& name##_avx512();       \
  const Table& name() {               \
    switch (best_isa()) {             \
      case Isa::kAvx512:              \
        return name##_avx512();       \
      case Isa::kAvx2:                \
        return name##_avx2();         \
      case Isa::kBaseline:            \
        break;                        \
    }                                 \
    return name##_baseline();         \
  }
TRAINYARD_SELECT(PoolLoops, pool_loops)
TRAINYARD_SELECT(ElementwiseLoops, elementwise_loops)
TRAINYARD_SELECT(ActivationLoops, activation_loops)
TRAINYARD_SELECT(ArithmeticLoops, arithmetic_loops)
TRAINYARD_SELECT(ReduceLoops, reduce_loops)
TRAINYARD_SELECT(StridedLoops, strided_loops)
TRAINYARD_SELECT(UpdateLoops, update_loops)
TRAINYARD_SELECT(ColumnLoops, column_loops)
TRAINYARD_SELECT(BatchNormLoops, batch_norm_loops)
TRAINYARD_SELECT(AttentionLoops, attention_loops)
TRAINYARD_SELECT(EmbeddingBagLoops, embedding_bag_loops)
TRAINYARD_SELECT(FewRowsLoops, few_rows_loops)
TRAINYARD_SELECT(RecurrentLoops, recurrent_loops)
TRAINYARD_SELECT(RotaryLoops, rotary_loops)
TRAINYARD_SELECT(RowLoops, row_loops)
#undef TRAINYARD_SELECT

}  // namespace trainyard::kernels::cpu
