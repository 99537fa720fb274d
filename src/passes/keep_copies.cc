#include "src/passes/keep_copies.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/ops/cast.h"
#include "src/ops/optimizer_update.h"
#include "src/ops/shards.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

/// A copy of at most this many elements is kept even if only the forward pass reads it.
constexpr int64_t kSmall = int64_t{1} << 16;

class Copies : public NodeEdits {
 public:
  explicit Copies(Graph& graph) : NodeEdits(graph), graph_(graph) {}

  void run() {
    for (size_t k = 0; k < count(); ++k) {
      if (!updates_whole_parameter(node(k)) || updates_of(node(k).inputs[0]) != 1) continue;
      if (const auto cast = kept_cast(node(k).inputs[0])) keep(k, *cast);
    }
    apply();
  }

 private:
  bool updates_whole_parameter(const Node& update) const {
    if (update.phase != Phase::kUpdate) return false;
    const std::optional<size_t> copy = copy_input(*update.op);
    if (!copy.has_value() || updated_rows(graph(), update).has_value()) return false;
    const TensorInfo& p = tensor(update.inputs[0]);
    return p.role == Role::kParameter && p.spread == Spread::kOwn &&
           update.attributes.get_int(kRanks, 1) == 1;
  }

  /// Returns how many nodes update `id`.
  int64_t updates_of(TensorId id) const {
    return std::ranges::count_if(readers(id), [&](size_t k) {
      return std::ranges::any_of(node(k).op->mutated_inputs(node(k)), [&](int64_t i) {
        return node(k).inputs.at(static_cast<size_t>(i)) == id;
      });
    });
  }

  /// Returns the cast of a parameter to 16 bits, if its result is to be kept.
  std::optional<size_t> kept_cast(TensorId parameter) const {
    for (const size_t k : readers(parameter)) {
      if (node(k).op != cast_op()) continue;
      const TensorId copy = node(k).outputs[0];
      if (tensor(copy).is_half() && !is_marked(copy) && is_worth_it(copy)) return k;
    }
    return std::nullopt;
  }
  bool is_worth_it(TensorId copy) const {
    return tensor(copy).type.shape.elements() <= kSmall ||
           std::ranges::any_of(readers(copy), [&](size_t reader) {
             return node(reader).phase == Phase::kBackward;
           });
  }

  void keep(size_t update, size_t cast) {
    const TensorId computed = node(cast).outputs[0];
    const TensorInfo& p = tensor(node(cast).inputs[0]);
    TensorInfo info{p.name + ".copy", p.type, Role::kCopy, p.layout, kNoNode, {}};
    info.storage = tensor(computed).storage;
    const TensorId copy = graph_.add_tensor(std::move(info));
    for (const size_t reader : readers(computed)) {
      Node reading = node(reader);
      std::ranges::replace(reading.inputs, computed, copy);
      replace(reader, std::move(reading));
    }
    Node writing = node(update);
    writing.inputs.resize(copy_input(*writing.op).value(), kNoTensor);
    writing.inputs.push_back(copy);
    replace(update, std::move(writing));
    absorb(cast);
  }

  Graph& graph_;
};

}  // namespace

void keep_copies(Graph& graph) { Copies(graph).run(); }

}  // namespace trainyard
