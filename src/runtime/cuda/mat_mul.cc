// src/runtime/cuda/mat_mul.cc: MatMul and its gradient with cuBLASLt, in batches of products whose
// matrices are equally spaced.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/cuda/convert.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::MatMulBatch;
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

/// One product: the indices of its matrices in a, b and c.
using Matrices = std::array<int64_t, 3>;

/// Computes c[t[2]] = a[t[0]] b[t[1]] for each t of the first round, and adds to c in the following
/// rounds. A round uses no matrix of c twice.
class Products {
 public:
  /// `dims` without batch and storage formats. `elements` are the elements per matrix of a, b and
  /// c, `formats` their storage formats. With several rounds, sums are in F32 until the last round.
  Products(const Device& device, MatmulDims dims, const std::vector<std::vector<Matrices>>& rounds,
           const Matrices& elements, std::array<Format, 3> formats, int64_t c_count)
      : device_(device), elements_(elements) {
    if (rounds.size() > 1 && formats[2] != Format::kF32) {
      sum_elements_ = c_count * elements[2];
      sum_bytes_ = aligned(4 * sum_elements_);
      formats[2] = Format::kF32;
    }
    std::map<std::array<int64_t, 5>, const Product*>
        prepared;  // by batch size, distances, accumulate
    for (const std::vector<Matrices>& round : rounds) {
      dims.accumulate = &round != &rounds.front();
      for (size_t begin = 0; begin < round.size();) {
        const size_t count = run_at(round, begin);
        Matrices apart{};
        for (size_t i = 0; i < 3 && count > 1; ++i)
          apart[i] = round[begin + 1][i] - round[begin][i];
        const Product*& product = prepared[{static_cast<int64_t>(count), apart[0], apart[1],
                                            apart[2], dims.accumulate ? 1 : 0}];
        if (product == nullptr) {
          dims.batch = static_cast<int64_t>(count);
          dims.stride_a = apart[0] * elements[0];
          dims.stride_b = apart[1] * elements[1];
          dims.stride_c = apart[2] * elements[2];
          dims.alignment = alignment_of(elements, formats);
          product = &products_.emplace_back(device, dims, formats[0], formats[1], formats[2]);
          product_bytes_ = std::max(product_bytes_, product->workspace_bytes());
        }
        runs_.push_back({round[begin], product});
        begin += count;
      }
    }
  }
  int64_t workspace_bytes() const { return sum_bytes_ + product_bytes_; }
  void run(const In& a, const In& b, const Out& c, void* workspace) const {
    auto* const rest = static_cast<std::byte*>(workspace) + sum_bytes_;
    const Out sum = sum_elements_ > 0 ? Out{workspace} : c;
    for (const Run& r : runs_) {
      r.product->run(a + r.first[0] * elements_[0], b + r.first[1] * elements_[1], {},
                     sum + r.first[2] * elements_[2], rest);
    }
    if (sum_elements_ > 0) kernels::cuda::convert(sum_elements_, sum, c, device_.stream());
  }

 private:
  struct Run {
    Matrices first;
    const Product* product;
  };

  /// The number of products from `begin` on whose matrices are equally spaced.
  static size_t run_at(const std::vector<Matrices>& round, size_t begin) {
    size_t count = 1;
    while (begin + count < round.size()) {
      bool follows = true;
      for (size_t i = 0; i < 3; ++i) {
        const int64_t apart = round[begin + count][i] - round[begin + count - 1][i];
        follows =
            follows && apart >= 0 && (count == 1 || apart == round[begin + 1][i] - round[begin][i]);
      }
      if (!follows) break;
      ++count;
    }
    return count;
  }

  /// Returns the alignment of every matrix, in bytes.
  static uint32_t alignment_of(const Matrices& elements, const std::array<Format, 3>& formats) {
    int64_t bytes = 16;
    for (size_t i = 0; i < 3; ++i) bytes = std::gcd(bytes, elements[i] * element_bytes(formats[i]));
    return static_cast<uint32_t>(bytes);
  }

  const Device& device_;
  Matrices elements_;
  std::deque<Product> products_;  // a deque, so that elements do not move
  std::vector<Run> runs_;
  int64_t sum_elements_ = 0, sum_bytes_ = 0, product_bytes_ = 0;
};

/// Returns the products of a gradient: matrix of[p] gets a term from dc[p] and other[p]. Round r
/// contains the r-th term of every matrix.
std::vector<std::vector<Matrices>> rounds_of(const std::vector<int64_t>& of,
                                             const std::vector<int64_t>& other, int64_t count,
                                             bool dc_is_left) {
  std::vector<std::vector<Matrices>> terms(static_cast<size_t>(count));
  for (size_t p = 0; p < of.size(); ++p) {
    const auto dc = static_cast<int64_t>(p);
    terms[static_cast<size_t>(of[p])].push_back(dc_is_left ? Matrices{dc, other[p], of[p]}
                                                           : Matrices{other[p], dc, of[p]});
  }
  std::vector<std::vector<Matrices>> rounds;
  for (const std::vector<Matrices>& of_matrix : terms) {
    rounds.resize(std::max(rounds.size(), of_matrix.size()));
    for (size_t r = 0; r < of_matrix.size(); ++r) rounds[r].push_back(of_matrix[r]);
  }
  return rounds;
}

class MatMulKernel final : public Kernel {
 public:
  MatMulKernel(const Device& device, const Graph& g, const Node& n)
      : operands_(g, n), products_(make_products(device, g, n)) {}
  int64_t workspace_bytes() const override { return products_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    products_.run(operands_.in(a, 0), operands_.in(a, 1), operands_.out(a, 0), a.workspace);
  }

 private:
  static Products make_products(const Device& device, const Graph& g, const Node& n) {
    const MatMulBatch d = mat_mul_dims(g, n);
    std::vector<Matrices> all;
    for (size_t p = 0; p < d.a_of.size(); ++p) {
      all.push_back({d.a_of[p], d.b_of[p], static_cast<int64_t>(p)});
    }
    MatmulDims dims{d.M, d.N, d.K};
    dims.tf32 = allows_tf32(n);
    return {device,
            dims,
            {all},
            {d.M * d.K, d.K * d.N, d.M * d.N},
            {format_of(input_info(g, n, 0)), format_of(input_info(g, n, 1)),
             format_of(output_info(g, n, 0))},
            std::ssize(all)};
  }

  Operands operands_;
  Products products_;
};

/// da = dc b', db = a' dc; omitted outputs are not computed. The products run one after another on
/// one stream, so they share one workspace.
class MatMulGradKernel final : public Kernel {
 public:
  MatMulGradKernel(const Device& device, const Graph& g, const Node& n) : operands_(g, n) {
    const MatMulBatch d = mat_mul_dims(g, n);
    const Format a = format_of(input_info(g, n, 0)), b = format_of(input_info(g, n, 1)),
                 dc = format_of(input_info(g, n, 2));
    if (has_output(n, 0)) {
      MatmulDims dims{d.M, d.K, d.N, false, true};
      dims.tf32 = allows_tf32(n);
      da_.emplace(device, dims, rounds_of(d.a_of, d.b_of, d.a_count, true),
                  Matrices{d.M * d.N, d.K * d.N, d.M * d.K},
                  std::array{dc, b, format_of(output_info(g, n, 0))}, d.a_count);
    }
    if (has_output(n, 1)) {
      MatmulDims dims{d.K, d.N, d.M, true, false};
      dims.tf32 = allows_tf32(n);
      db_.emplace(device, dims, rounds_of(d.b_of, d.a_of, d.b_count, false),
                  Matrices{d.M * d.K, d.M * d.N, d.K * d.N},
                  std::array{a, dc, format_of(output_info(g, n, 1))}, d.b_count);
    }
  }
  int64_t workspace_bytes() const override {
    return std::max(da_ ? da_->workspace_bytes() : 0, db_ ? db_->workspace_bytes() : 0);
  }
  void run(const KernelArgs& k) override {
    const In a = operands_.in(k, 0), b = operands_.in(k, 1), dc = operands_.in(k, 2);
    if (da_) da_->run(dc, b, operands_.out(k, 0), k.workspace);
    if (db_) db_->run(a, dc, operands_.out(k, 1), k.workspace);
  }

 private:
  Operands operands_;
  std::optional<Products> da_, db_;
};

}  // namespace

std::span<const CudaEntry> mat_mul_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"MatMul", make_device_kernel<MatMulKernel>},
      {"MatMulGrad", make_device_kernel<MatMulGradKernel>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
