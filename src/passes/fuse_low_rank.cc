#include "src/passes/fuse_low_rank.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/ops/add.h"
#include "src/ops/arithmetic.h"
#include "src/ops/gemm.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class LowRankSums : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == add_op() && node(k).phase == Phase::kForward) fuse_forward(k);
    }
    if (ranks_.empty()) return;
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op == add_op() && node(k).phase == Phase::kBackward) fuse_backward(k);
    }
    apply();
  }

 private:
  std::optional<size_t> product_of(TensorId id) const {
    if (tensor(id).producer == kNoNode || node(producer(id)).op != gemm_op()) return std::nullopt;
    return producer(id);
  }
  /// Returns the product whose result, perhaps multiplied by a number, is `id`.
  std::optional<size_t> scaled_product_of(TensorId id) const {
    if (tensor(id).producer == kNoNode) return std::nullopt;
    const Node& n = node(producer(id));
    if (n.op == &get_op("Mul")) return product_of(n.inputs[0]);
    return product_of(id);
  }

  /// Fuses Add(p, q) into the product q, which is at a later place than p.
  void fuse_forward(size_t k) {
    const TensorId p = node(k).inputs[0], q = node(k).inputs[1], y = node(k).outputs[0];
    const std::optional<size_t> base = product_of(p), second = product_of(q);
    if (!base || !second || *base > *second) return;
    if (only_reader(p) != k || only_reader(q) != k || tensor(p).type != tensor(q).type) return;
    const std::optional<size_t> first = scaled_product_of(node(*second).inputs[0]);
    if (!first || node(*second).inputs.size() != 2 || node(*first).inputs.size() != 2) return;
    Node fused = node(*second);
    fused.op = gemm_add_op();
    fused.inputs = {fused.inputs[0], fused.inputs[1], kNoTensor, p};
    fused.outputs = {y};
    ranks_.insert(node(*first).inputs[1]);
    absorb(k);
    replace(*second, std::move(fused));
  }

  /// Returns the product of which `id` is dx, if only node k reads it.
  std::optional<size_t> gradient_of(TensorId id, size_t k) const {
    if (tensor(id).producer == kNoNode || only_reader(id) != k) return std::nullopt;
    const size_t from = producer(id);
    const bool is_dx = node(from).op == gemm_grad_op() && node(from).outputs[0] == id;
    return is_dx ? std::optional(from) : std::nullopt;
  }

  /// Fuses a sum with a product whose weight is the first factor of a low-rank addition, or else
  /// with one that adds to such a sum.
  void fuse_backward(size_t k) {
    const std::vector<TensorId>& terms = node(k).inputs;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const TensorId other = terms[1 - i];
      if (terms[i] == other || !is_activation(other)) continue;
      const std::optional<size_t> product = gradient_of(terms[i], k);
      if (!product || tensor(other).type != tensor(terms[i]).type) continue;
      if (!adapts(*product)) continue;
      // The fused node is at the place of the sum, where c exists. No other node may need its
      // other outputs before.
      if (reads_before(*product, k)) continue;
      Node fused = node(*product);
      fused.op = gemm_grad_add_op();
      fused.inputs.resize(3);
      fused.inputs.push_back(other);
      fused.outputs[0] = node(k).outputs[0];
      absorb(*product);
      replace(k, std::move(fused));
      return;
    }
  }

  /// Returns whether the product belongs to a layer with a low-rank addition: its weight is that
  /// addition's first factor, or it reads the same x as such a product.
  bool adapts(size_t product) const {
    const TensorId x = node(product).inputs[0];
    for (const size_t reader : readers(x)) {
      const Node& n = node(reader);
      if (n.op != nullptr && n.inputs.size() > 1 && ranks_.contains(n.inputs[1])) return true;
    }
    return false;
  }
  bool reads_before(size_t product, size_t k) const {
    for (size_t o = 1; o < node(product).outputs.size(); ++o) {
      const TensorId id = node(product).outputs[o];
      if (id == kNoTensor) continue;
      for (const size_t reader : readers(id)) {
        if (reader < k) return true;
      }
    }
    return false;
  }

  std::set<TensorId> ranks_;  // the first factors of low-rank additions
};

}  // namespace

void fuse_low_rank(Graph& graph) { LowRankSums(graph).run(); }

}  // namespace trainyard
