#include "src/passes/fuse_pools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/ops/activation.h"
#include "src/ops/max_pool.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

class Pools : public NodeEdits {
 public:
  using NodeEdits::NodeEdits;

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (node(k).op != max_pool_op()) continue;
      if (!fuse_relu_behind(k)) fuse_relu_before(k);
    }
    apply();
  }

 private:
  static Node with_relu(Node pool) {
    pool.attributes.set("relu", int64_t{1});
    return pool;
  }
  static TensorId winner_of(const Node& pool) {
    return pool.outputs.size() > 1 ? pool.outputs[1] : kNoTensor;
  }
  /// Returns whether the pool can include ReLU: if it has a gradient, this must read winners, and a
  /// winner must have a value for "none".
  bool takes_relu(const Node& pool) const {
    if (winner_of(pool) != kNoTensor) return has_byte_cells(with_relu(pool).attributes);
    return std::ranges::none_of(readers(pool.inputs[0]), [&](size_t reader) {
      return node(reader).op == max_pool_grad_op();
    });
  }
  /// Returns the only reader of `id`, if its op is `op`.
  std::optional<size_t> only(TensorId id, const Op* op) const {
    const std::optional<size_t> reader = only_reader(id);
    return reader && node(*reader).op == op ? reader : std::nullopt;
  }
  /// Returns the pool's gradient node; none if the pool is not trained.
  std::optional<size_t> gradient_of(const Node& pool) const {
    const TensorId winner = winner_of(pool);
    return winner == kNoTensor ? std::nullopt : only(winner, max_pool_grad_op());
  }
  bool is_trained(const Node& pool) const {
    const TensorId winner = winner_of(pool);
    return winner != kNoTensor && (is_marked(winner) || !readers(winner).empty());
  }

  bool fuse_relu_behind(size_t k) {
    const Node& pool = node(k);
    const std::optional<size_t> relu = only(pool.outputs[0], relu_op());
    if (!relu || node(*relu).phase != pool.phase || !takes_relu(pool)) return false;
    const std::optional<size_t> grad = gradient_of(pool);
    if (is_trained(pool)) {
      if (!grad) return false;
      const TensorId dpool = node(*grad).inputs[0];
      if (tensor(dpool).producer == kNoNode || only_reader(dpool) != grad) return false;
      const size_t relu_grad = producer(dpool);
      if (node(relu_grad).op != relu_grad_op()) return false;
      if (node(relu_grad).inputs[0] != node(*relu).outputs[0]) return false;
      Node fused = with_relu(node(*grad));
      fused.inputs[0] = node(relu_grad).inputs[1];
      absorb(relu_grad);
      replace(*grad, std::move(fused));
    }
    Node fused = with_relu(pool);
    fused.outputs[0] = node(*relu).outputs[0];
    absorb(*relu);
    replace(k, std::move(fused));
    return true;
  }

  void fuse_relu_before(size_t k) {
    const Node& pool = node(k);
    const TensorId y = pool.inputs[0];
    if (is_marked(y) || !is_activation(y) || !takes_relu(pool)) return;
    const size_t relu = producer(y);
    if (node(relu).op != relu_op() || node(relu).phase != pool.phase) return;
    const std::optional<size_t> grad = gradient_of(pool);
    if (is_trained(pool) != grad.has_value()) return;
    // Apart from the pool, only ReLU's gradient may read y, and the pool's gradient must have no
    // other reader than ReLU's.
    std::optional<size_t> relu_grad;
    for (const size_t reader : readers(y)) {
      if (reader == k) continue;
      if (!grad || relu_grad || node(reader).op != relu_grad_op()) return;
      if (only_reader(node(*grad).outputs[0]) != reader || node(reader).inputs[0] != y) return;
      relu_grad = reader;
    }
    if (grad.has_value() != relu_grad.has_value()) return;
    if (grad) {
      Node fused = with_relu(node(*grad));
      fused.outputs[0] = node(*relu_grad).outputs[0];
      absorb(*relu_grad);
      replace(*grad, std::move(fused));
    }
    Node fused = with_relu(pool);
    fused.inputs[0] = node(relu).inputs[0];
    absorb(relu);
    replace(k, std::move(fused));
  }
};

}  // namespace

void fuse_pools(Graph& graph) { Pools(graph).run(); }

}  // namespace trainyard
