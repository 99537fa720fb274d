#include "kernels/matmul.h"

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// The minimum work per thread: about 3 us.
constexpr int64_t kFlopsPerThread = 500'000;

/// One matrix of the result, as a sum of products.
struct Sum {
  int64_t result;                                    // offset of the matrix
  std::vector<std::pair<int64_t, int64_t>> factors;  // offsets of left and right
};

/// Sums of products of the same size, with dense results, computed by a team. Each thread computes
/// whole sums or, if there are fewer sums than threads, some rows of every sum. Each part has its
/// own primitive, and memory for a product that is added to another.
class ProductSums {
 public:
  ProductSums(const MatmulDims& d, std::vector<Sum> sums, Team& team)
      : d_(d), sums_(std::move(sums)), team_(team) {
    int64_t products = 0;
    for (const Sum& sum : sums_) products += static_cast<int64_t>(sum.factors.size());
    const auto count = static_cast<int64_t>(sums_.size());
    by_rows_ = count < team.size();
    const int64_t parts_max = std::min<int64_t>(team.size(), by_rows_ ? d.M : count);
    const int64_t parts = std::clamp<int64_t>(2 * d.M * d.N * d.K * products / kFlopsPerThread, 1,
                                              std::max<int64_t>(parts_max, 1));
    bool adds = false;
    for (const Sum& sum : sums_) adds = adds || sum.factors.size() > 1;
    for (int64_t i = 0; i < parts; ++i) {
      Part part;
      part.rows = by_rows_ ? part_of(d.M, i, parts) : Range{0, d.M};
      part.sums = by_rows_ ? Range{0, count} : part_of(count, i, parts);
      MatmulDims own = d;
      own.M = part.rows.size();
      part.product = Matmul(own);
      part.workspace = workspace_.add(part.product.workspace_bytes());
      part.term = workspace_.add(adds ? own.M * d.N * static_cast<int64_t>(sizeof(float)) : 0);
      parts_.push_back(std::move(part));
    }
  }
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }

  void run(const float* left, const float* right, float* result, void* memory) {
    team_.run(static_cast<int>(parts_.size()), [&](int index) {
      Part& part = parts_[static_cast<size_t>(index)];
      const int64_t row = part.rows.begin;
      float* term = static_cast<float*>(at_offset(memory, part.term));
      for (int64_t s = part.sums.begin; s < part.sums.end; ++s) {
        const Sum& sum = sums_[static_cast<size_t>(s)];
        float* c = result + sum.result + row * d_.c.row;
        bool first = true;
        for (const auto& [a, b] : sum.factors) {
          part.product.run(left + a + row * d_.a.row, right + b, nullptr, first ? c : term,
                           at_offset(memory, part.workspace));
          if (!first) row_loops().accumulate(part.rows.size() * d_.N, term, c);
          first = false;
        }
      }
    });
  }

 private:
  struct Part {
    Range rows, sums;
    Matmul product;
    int64_t workspace = 0, term = 0;  // offsets
  };
  MatmulDims d_;
  std::vector<Sum> sums_;
  Team& team_;
  bool by_rows_ = false;
  std::vector<Part> parts_;
  WorkspaceLayout workspace_;
};

ProductSums forward_sums(const MatMulBatch& d, Team& team) {
  std::vector<Sum> sums;
  for (size_t p = 0; p < d.a_of.size(); ++p) {
    sums.push_back(
        {static_cast<int64_t>(p) * d.M * d.N, {{d.a_of[p] * d.M * d.K, d.b_of[p] * d.K * d.N}}});
  }
  return {{d.M, d.N, d.K, {d.K, 1}, {d.N, 1}, {d.N, 1}}, std::move(sums), team};
}

// Describes da[i] = sum of dc[p] b[b_of[p]]^T over p with a_of[p] == i
ProductSums left_sums(const MatMulBatch& d, Team& team) {
  std::vector<Sum> sums(static_cast<size_t>(d.a_count));
  for (size_t i = 0; i < sums.size(); ++i) sums[i].result = static_cast<int64_t>(i) * d.M * d.K;
  for (size_t p = 0; p < d.a_of.size(); ++p) {
    sums[static_cast<size_t>(d.a_of[p])].factors.emplace_back(static_cast<int64_t>(p) * d.M * d.N,
                                                              d.b_of[p] * d.K * d.N);
  }
  return {{d.M, d.K, d.N, {d.N, 1}, {1, d.N}, {d.K, 1}}, std::move(sums), team};
}

// Describes db[j] = sum of a[a_of[p]]^T dc[p] over p with b_of[p] == j
ProductSums right_sums(const MatMulBatch& d, Team& team) {
  std::vector<Sum> sums(static_cast<size_t>(d.b_count));
  for (size_t i = 0; i < sums.size(); ++i) sums[i].result = static_cast<int64_t>(i) * d.K * d.N;
  for (size_t p = 0; p < d.b_of.size(); ++p) {
    sums[static_cast<size_t>(d.b_of[p])].factors.emplace_back(d.a_of[p] * d.M * d.K,
                                                              static_cast<int64_t>(p) * d.M * d.N);
  }
  return {{d.K, d.N, d.M, {1, d.K}, {d.N, 1}, {d.N, 1}}, std::move(sums), team};
}

}  // namespace

struct MatMulForward::Impl {
  ProductSums sums;
};

MatMulForward::MatMulForward(const MatMulBatch& d, Team& team)
    : impl_(std::make_unique<Impl>(Impl{forward_sums(d, team)})) {}
MatMulForward::~MatMulForward() = default;
int64_t MatMulForward::workspace_bytes() const { return impl_->sums.workspace_bytes(); }
void MatMulForward::run(const float* a, const float* b, float* c, void* workspace) {
  impl_->sums.run(a, b, c, workspace);
}

struct MatMulBackward::Impl {
  std::unique_ptr<ProductSums> left, right;
};

MatMulBackward::MatMulBackward(const MatMulBatch& d, bool wants_da, bool wants_db, Team& team)
    : impl_(std::make_unique<Impl>()) {
  if (wants_da) impl_->left = std::make_unique<ProductSums>(left_sums(d, team));
  if (wants_db) impl_->right = std::make_unique<ProductSums>(right_sums(d, team));
}
MatMulBackward::~MatMulBackward() = default;
int64_t MatMulBackward::workspace_bytes() const {  // both run in turn, in the same memory
  return std::max(impl_->left ? impl_->left->workspace_bytes() : 0,
                  impl_->right ? impl_->right->workspace_bytes() : 0);
}
void MatMulBackward::run(const float* a, const float* b, const float* dc, float* da, float* db,
                         void* workspace) {
  if (da != nullptr) impl_->left->run(dc, b, da, workspace);
  if (db != nullptr) impl_->right->run(a, dc, db, workspace);
}

}  // namespace trainyard::kernels::cpu
