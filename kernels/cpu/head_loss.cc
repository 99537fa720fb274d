#include "kernels/head_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/soft_target.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kRowStep = 32;                         // products exist for multiples of it
constexpr int64_t kScoreBytesMax = int64_t{48} << 20;    // the scores that exist at a time
constexpr int64_t kWeightBytesMax = int64_t{512} << 10;  // a part of w that stays in the L2 cache
constexpr int64_t kClassStep = 64, kFloat = sizeof(float);

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

// The classes are divided over the threads, and each thread's classes into blocks. A block of w is
// widened, if need be, right before it is multiplied. A chunk of rows passes over w twice: for its
// scores, and for dx, of which each thread computes the summand of its classes. If x and w are
// stored in bfloat16 and the CPU multiplies such numbers, they are not widened; the gradient of the
// scores is then rounded to bfloat16.
struct HeadLoss::Impl {
  SoftmaxXentParams p;
  int64_t F;
  Form form;
  Team& team;
  int threads;
  bool bf16;      // x and w are multiplied as they are
  int64_t chunk;  // rows whose scores exist at a time
  int64_t block;  // classes
  int64_t blocks;

  // The products of one thread: for each number of rows, with a whole block and with the last one.
  struct Products {
    std::vector<Matmul> scores, gradients;
  };
  std::vector<Products> products;
  WorkspaceLayout workspace;
  int64_t index_at, terms_at, x_at, z_at;
  std::vector<int64_t> wide_at, dx_at, scratch_at;  // by thread

  Impl(const SoftmaxXentParams& params, int64_t features, Form how, Team& t)
      : p(params),
        F(features),
        form(how),
        team(t),
        threads(t.size()),
        bf16(form.x == Stored::kBf16 && form.w == Stored::kBf16 && multiplies_bf16()) {
    const int64_t rows = kScoreBytesMax / (kFloat * p.classes) / kRowStep * kRowStep;
    chunk = std::clamp(rows, kRowStep, rounded_up(p.rows, kRowStep));
    block = std::max(kClassStep, kWeightBytesMax / (kFloat * F) / kClassStep * kClassStep);
    block = std::min(block, p.classes);
    blocks = (p.classes + block - 1) / block;
    index_at = workspace.add(p.rows * static_cast<int64_t>(sizeof(int32_t)));
    terms_at = workspace.add(p.rows * static_cast<int64_t>(sizeof(double)));
    x_at = workspace.add(chunk * F * kFloat);
    z_at = workspace.add(chunk * p.classes * kFloat);
    for (int i = 0; i < threads; ++i) prepare_thread();
  }

  void prepare_thread() {
    Products& of_thread = products.emplace_back();
    int64_t scratch = 0;
    for (int64_t m = kRowStep; m <= chunk; m += kRowStep) {
      for (const int64_t n : {block, p.classes - (blocks - 1) * block}) {
        of_thread.scores.emplace_back(MatmulDims{.M = m,
                                                 .N = n,
                                                 .K = F,
                                                 .a = {F, 1},
                                                 .b = {1, F},
                                                 .c = {p.classes, 1},
                                                 .bias = form.bias,
                                                 .bf16 = bf16});
        of_thread.gradients.emplace_back(MatmulDims{.M = m,
                                                    .N = F,
                                                    .K = n,
                                                    .a = {bf16 ? 2 * p.classes : p.classes, 1},
                                                    .b = {F, 1},
                                                    .c = {F, 1},
                                                    .accumulate = true,
                                                    .bf16 = bf16});
        scratch = std::max({scratch, of_thread.scores.back().workspace_bytes(),
                            of_thread.gradients.back().workspace_bytes()});
      }
    }
    scratch_at.push_back(workspace.add(scratch));
    wide_at.push_back(widens() ? workspace.add(block * F * kFloat) : 0);
    dx_at.push_back(workspace.add(chunk * F * kFloat));
  }

  bool widens() const { return form.w != Stored::kF32 && !bf16; }

  /// Calls f(index of the product, first class, rows of w) for each block of the thread.
  template <typename Visit>
  void for_blocks(int thread, int64_t rows, const void* w, void* memory, const Visit& f) const {
    const Range mine = part_of(blocks, thread, threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const int64_t first = i * block, count = std::min(block, p.classes - first);
      const void* part = element_of(form.w, w, first * F);
      if (widens()) {
        auto* wide = static_cast<float*>(at_offset(memory, wide_at[static_cast<size_t>(thread)]));
        widen_from(form.w, count * F, part, wide);
        part = wide;
      }
      const auto size = static_cast<size_t>(2 * (rows / kRowStep - 1) + (i + 1 == blocks ? 1 : 0));
      f(size, first, part);
    }
  }

  /// Replaces a row of scores by their gradient, and returns the row's loss.
  double turn(float* z, int32_t label, const SoftTarget& target, double scale) const {
    const float z_label = z[label];
    double others = 0;
    if (target.smooth()) {
      for (int64_t k = 0; k < p.classes; ++k) {
        others += target.off(k) * static_cast<double>(z[k]);
      }
    }
    float sum = 0;
    const float max = row_loops().softmax(p.classes, z, z, &sum);
    const double log_sum = static_cast<double>(std::log(sum));
    double term =
        target.on(label) * (log_sum - static_cast<double>(z_label - max)) - target.entropy();
    const double whole = target.sum(label);
    if (target.smooth()) {
      term += (whole - target.on(label)) * (static_cast<double>(max) + log_sum) - others;
    }
    const auto p_label = static_cast<double>(z[label]);
    row_loops().scale(p.classes, static_cast<float>(scale * whole), z, z);
    if (target.smooth()) {
      for (int64_t k = 0; k < p.classes; ++k) z[k] -= static_cast<float>(scale * target.off(k));
    }
    const double c = target.on(label) + target.off(label);
    z[label] = static_cast<float>(scale * (whole * p_label - c));
    return term;
  }

  /// Rounds a row of scores' gradients to bfloat16, at the row's beginning.
  void narrow_in_place(float* row) const {
    constexpr int64_t kBlock = 1024;
    math::Bf16 rounded[kBlock];
    auto* const to = reinterpret_cast<std::byte*>(row);
    for (int64_t k = 0; k < p.classes; k += kBlock) {
      const int64_t count = std::min(kBlock, p.classes - k);
      narrow_to(Stored::kBf16, count, row + k, rounded);
      std::memcpy(to + 2 * k, rounded, static_cast<size_t>(2 * count));
    }
  }

  /// Computes `count` rows, whose numbers in the batch are in `index`.
  void run_chunk(const Operands& o, const int32_t* index, int64_t count, double scale,
                 double* terms, void* memory) {
    void* const x = at_offset(memory, x_at);
    const Stored x_stored = bf16 ? Stored::kBf16 : Stored::kF32;
    auto* z = static_cast<float*>(at_offset(memory, z_at));
    const int64_t rows = rounded_up(count, kRowStep);
    const SoftTarget target(p);
    team.parallel_for(rows, grain_of(F), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        void* const row = element_of(x_stored, x, r * F);
        if (r >= count) {
          std::memset(row, 0, static_cast<size_t>(F * size_of(x_stored)));
        } else if (bf16) {
          std::memcpy(row, element_of(form.x, o.x, index[r] * F), static_cast<size_t>(2 * F));
        } else {
          widen_from(form.x, F, element_of(form.x, o.x, index[r] * F), static_cast<float*>(row));
        }
      }
    });
    team.run(threads, [&](int thread) {
      void* scratch = at_offset(memory, scratch_at[static_cast<size_t>(thread)]);
      for_blocks(thread, rows, o.w, memory, [&](size_t size, int64_t first, const void* w) {
        products[static_cast<size_t>(thread)].scores[size].run(
            x, w, form.bias ? o.b + first : nullptr, z + first, scratch);
      });
    });
    team.parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* row = z + r * p.classes;
        if (r < count) {
          terms[r] = turn(row, o.label[index[r]], target, scale);
        } else {
          std::fill_n(row, p.classes, 0.0f);
        }
        if (bf16) narrow_in_place(row);
      }
    });
    if (o.dx == nullptr) return;
    team.run(threads, [&](int thread) {
      auto* dx = static_cast<float*>(at_offset(memory, dx_at[static_cast<size_t>(thread)]));
      void* scratch = at_offset(memory, scratch_at[static_cast<size_t>(thread)]);
      std::fill_n(dx, rows * F, 0.0f);
      for_blocks(thread, rows, o.w, memory, [&](size_t size, int64_t first, const void* w) {
        const void* dz =
            bf16 ? element_of(Stored::kBf16, static_cast<const void*>(z), first) : z + first;
        products[static_cast<size_t>(thread)].gradients[size].run(dz, w, nullptr, dx, scratch);
      });
    });
    team.parallel_for(count, grain_of(F), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* sum = static_cast<float*>(at_offset(memory, dx_at[0])) + r * F;
        for (int i = 1; i < threads; ++i) {
          const auto* dx =
              static_cast<const float*>(at_offset(memory, dx_at[static_cast<size_t>(i)]));
          row_loops().accumulate(F, dx + r * F, sum);
        }
        narrow_to(form.dx, F, sum, element_of(form.dx, o.dx, index[r] * F));
      }
    });
  }
};

HeadLoss::HeadLoss(const SoftmaxXentParams& p, int64_t features, Form form, Team& team)
    : impl_(std::make_unique<Impl>(p, features, form, team)) {}
HeadLoss::~HeadLoss() = default;
int64_t HeadLoss::workspace_bytes() const { return impl_->workspace.size_bytes(); }

void HeadLoss::run(const Operands& o, void* workspace) {
  Impl& m = *impl_;
  check("head_loss", m.p)
      .given("x", o.x)
      .given("w", o.w)
      .given("label", o.label)
      .given("dloss", o.dloss)
      .given("loss", o.loss)
      .holds((o.b != nullptr) == m.form.bias, "b", "is not as prepared");
  auto* index = static_cast<int32_t*>(at_offset(workspace, m.index_at));
  auto* terms = static_cast<double*>(at_offset(workspace, m.terms_at));
  const SoftTarget target(m.p);
  const double weight = target.total_weight(o.label);
  int64_t count = 0;
  for (int64_t n = 0; n < m.p.rows && weight != 0; ++n) {
    if (target.counts(o.label[n])) index[count++] = static_cast<int32_t>(n);
  }
  if (o.dx != nullptr && count < m.p.rows) {
    std::fill_n(static_cast<std::byte*>(o.dx), m.p.rows * m.F * size_of(m.form.dx), std::byte{0});
  }
  const double scale = weight == 0 ? 0 : static_cast<double>(*o.dloss) / weight;
  for (int64_t first = 0; first < count; first += m.chunk) {
    m.run_chunk(o, index + first, std::min(m.chunk, count - first), scale, terms + first,
                workspace);
  }
  *o.loss = static_cast<float>(weight == 0 ? 0 : add_up(count, terms) / weight);
}

}  // namespace trainyard::kernels::cpu
