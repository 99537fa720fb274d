#include "src/train/sampled_head.h"

#include <string>
#include <utility>
#include <vector>

#include "src/base/philox.h"
#include "src/base/violations.h"
#include "src/graph/op.h"
#include "src/ops/row_exchange.h"
#include "src/ops/sampled_xent.h"
#include "src/ops/shards.h"
#include "src/train/model_head.h"

namespace trainyard {
namespace {

// The number of an exchange (src/ops/shards.h) that no bucket of gradients comes to.
constexpr int64_t kLabelsExchange = int64_t{1} << 30;

class Sampler final : public HeadReplacement {
 public:
  Sampler(const Model& model, const ModelHead& head, const SampledLoss& sampling, uint64_t seed,
          Rank rank)
      : HeadReplacement(model, head), sampling_(sampling), seed_(seed), rank_(rank) {}

  SampledModel sample() {
    sampled_.model = run();
    return std::move(sampled_);
  }

 private:
  TensorId add_head() override {
    const Node& node = gemm();
    draw(node.name);
    std::vector<TensorId> inputs = {copy_of(node.inputs[0])};
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoTensor) continue;
      const TensorId table = copy_of(node.inputs[i]);
      const std::string name = tensor(node.inputs[i]).name + "/rows";
      const TensorId rows = add(name, *take_rows_op(), {}, {table, sampled_.classes}, {name})[0];
      sampled_.taken_of[table] = rows;
      inputs.push_back(rows);
    }
    scores_ = add(node.name, *node.op, node.attributes, std::move(inputs),
                  {tensor(node.outputs[0]).name})[0];
    return kNoTensor;
  }

  void draw(const std::string& head) {
    to_.step = copy_of(from_.step);
    if (to_.step == kNoTensor) {
      to_.step = to_.graph.add_tensor(
          {"step", {{1}, DType::kI64}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
    }
    const TensorId target = loss().inputs[1];
    const std::string name = head + "/sample";
    std::vector<TensorId> inputs = {copy_of(target), to_.step};
    if (rank_.count > 1) {
      inputs.push_back(add(name + "/gather", *gather_rows_op(),
                           {{"bucket", kLabelsExchange}, {kRanks, rank_.count}}, {copy_of(target)},
                           {tensor(target).name + "/rows"})[0]);
    }
    Attributes attributes{{"classes", tensor(gemm().inputs[1]).type.shape[0]},
                          {"samples", sampling_.samples},
                          {"distribution", sampling_.distribution},
                          {"seed", static_cast<int64_t>(seed_)},
                          {"stream", static_cast<int64_t>(stream_of(name))},
                          {"dtype", std::string(name_of(tensor(gemm().inputs[1]).type.dtype))}};
    if (const Attribute* ignored = loss().attributes.find("ignore_index")) {
      attributes.set("ignore_index", *ignored);
    }
    const std::vector<TensorId> drawn =
        add(name, *sample_classes_op(), std::move(attributes), std::move(inputs),
            {name + ".classes", name + ".position", name + ".log_expected"});
    sampled_.classes = drawn[0];
    position_ = drawn[1];
    log_expected_ = drawn[2];
  }

  TensorId add_loss() override {
    return add(loss().name, *sampled_xent_op(), {{"samples", sampling_.samples}},
               {scores_, position_, log_expected_},
               {tensor(loss().outputs[0]).name, tensor(loss().outputs[1]).name})[0];
  }

  const SampledLoss sampling_;
  const uint64_t seed_;
  const Rank rank_;
  SampledModel sampled_;
  TensorId scores_ = kNoTensor, position_ = kNoTensor, log_expected_ = kNoTensor;
};

}  // namespace

Status check_sampled_recipe(const Recipe& recipe) {
  Violations violations;
  const auto refuse = [&](const char* field, const std::string& why) {
    violations.add("FIELD_CONFLICT", field, why);
  };
  if (recipe.shard != Shard::kNone) {
    refuse("resources.shard",
           name_of(recipe.shard) +
               " does not go with model.loss: sampled_softmax, which updates single rows of the "
               "head; expected shard: none, or the loss softmax_cross_entropy");
  }
  if (recipe.accumulate_steps > 1) {
    refuse("recipe.accumulate_steps",
           std::to_string(recipe.accumulate_steps) +
               " does not go with model.loss: sampled_softmax, whose micro-batches would each take "
               "other rows of the head; expected 1");
  }
  if (recipe.optimizer.type == "adafactor") {
    refuse("recipe.optimizer",
           "adafactor scales by the whole head and model.loss: sampled_softmax updates single rows "
           "of it; expected another optimizer, or the loss softmax_cross_entropy");
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

Result<SampledModel> sample_head(const Model& model, uint64_t seed, Rank rank) {
  const HeadUse use{"model.loss", "sampled_softmax", "softmax_cross_entropy"};
  ASSIGN_OR_RETURN(const ModelHead head, find_head(model, use));
  return Sampler(model, head, model.sampling.value(), seed, rank).sample();
}

}  // namespace trainyard
