// Muon: the Newton-Schulz iteration, computed with the products of a fully connected layer
// (gemm.h). The Gram matrix A is symmetric, so that A A = A A^T and A X = (X^T A)^T need no
// transposed copy.
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/cpu/onednn.h"  // WorkspaceLayout
#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kBlock = 4096;  // elements in a block, whose squares are added first

int64_t blocks_of(int64_t count) { return (count + kBlock - 1) / kBlock; }

}  // namespace

struct Muon::Impl {
  MuonParams s;
  Team& team;
  int64_t count, side;
  bool tall;  // more rows than columns: A = X^T X, else A = X X^T
  // wide: gram = X X^T, next = (A X).  tall: gram = X^T X, next = X A^T.
  std::optional<GemmForward> gram_forward, next_forward, square;
  std::optional<GemmBackward> gram_backward, next_backward;
  WorkspaceLayout layout;
  int64_t x_offset, next_offset, gram_offset, square_offset, gemm_offset;

  Impl(const MuonParams& params, Team& t)
      : s(params),
        team(t),
        count(s.rows * s.columns),
        side(std::min(s.rows, s.columns)),
        tall(s.rows > s.columns) {
    const auto floats = [](int64_t n) { return n * static_cast<int64_t>(sizeof(float)); };
    square.emplace(GemmDims{side, side, side}, /*bias=*/false, team);
    int64_t gemm_bytes = square->workspace_bytes();
    const auto keep = [&](const auto& product) {
      gemm_bytes = std::max(gemm_bytes, product.workspace_bytes());
    };
    if (tall) {
      keep(gram_backward.emplace(GemmDims{s.rows, side, side}, false, true, team));
      keep(next_forward.emplace(GemmDims{s.rows, side, side}, false, team));
    } else {
      keep(gram_forward.emplace(GemmDims{side, side, s.columns}, false, team));
      keep(next_backward.emplace(GemmDims{side, side, s.columns}, true, false, team));
    }
    x_offset = layout.add(floats(count));
    next_offset = layout.add(floats(count));
    gram_offset = layout.add(floats(side * side));
    square_offset = layout.add(floats(side * side));
    gemm_offset = layout.add(std::max(gemm_bytes, blocks_of(count) * int64_t{8}));
  }

  double square_sum(const float* x, double* terms) {
    team.parallel_for(
        blocks_of(count), kElementsPerThread / kBlock, [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kBlock;
            terms[block] = update_loops().square_sum(std::min(kBlock, count - first), x + first);
          }
        });
    double sum = 0;
    for (int64_t i = 0; i < blocks_of(count); ++i) sum += terms[i];
    return sum;
  }

  /// y = a x + b y
  void combine(int64_t n, double a, const float* x, double b, float* y) {
    team.parallel_for(n, kElementsPerThread, [&](int64_t begin, int64_t end) {
      update_loops().combine(static_cast<float>(a), x + begin, static_cast<float>(b), end - begin,
                             y + begin);
    });
  }

  void iterate(const float* x, float* gram, float* product, float* next, void* memory) {
    if (tall) {
      gram_backward->run(x, nullptr, x, nullptr, gram, nullptr, memory);
    } else {
      gram_forward->run(x, x, nullptr, gram, memory);
    }
    square->run(gram, gram, nullptr, product, memory);
    combine(side * side, math::kMuonB, gram, math::kMuonC, product);
    if (tall) {
      next_forward->run(x, product, nullptr, next, memory);
    } else {
      next_backward->run(nullptr, x, product, next, nullptr, nullptr, memory);
    }
    combine(count, math::kMuonA, x, 1, next);
  }
};

Muon::Muon(const MuonParams& s, Team& team) : impl_(std::make_unique<Impl>(s, team)) {}
Muon::~Muon() = default;
int64_t Muon::workspace_bytes() const { return impl_->layout.size_bytes(); }

void Muon::run(const float* g, const float* learning_rate, float* p, float* m, void* workspace) {
  if (math::is_skipped(*learning_rate)) return;
  Impl& k = *impl_;
  const MuonParams& s = k.s;
  const auto floats = [&](int64_t offset) {
    return static_cast<float*>(at_offset(workspace, offset));
  };
  float* x = floats(k.x_offset);
  float* next = floats(k.next_offset);
  void* memory = at_offset(workspace, k.gemm_offset);
  k.team.parallel_for(k.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    update_loops().muon_momentum(static_cast<float>(s.momentum), s.nesterov, end - begin, g + begin,
                                 m + begin, x + begin);
  });
  const double norm = std::sqrt(k.square_sum(x, static_cast<double*>(memory)));
  const auto scale =
      static_cast<float>(1 / (norm < math::kMuonEpsilon ? math::kMuonEpsilon : norm));
  k.team.parallel_for(k.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    update_loops().scale(scale, end - begin, x + begin, x + begin);
  });
  for (int64_t i = 0; i < s.iterations; ++i) {
    k.iterate(x, floats(k.gram_offset), floats(k.square_offset), next, memory);
    std::swap(x, next);
  }
  const double rate = *learning_rate * s.rate_factor;
  k.combine(k.count, -math::muon_rate(rate, s.match_adamw, s.rows, s.columns), x,
            1 - rate * s.weight_decay, p);
}

}  // namespace trainyard::kernels::cpu
