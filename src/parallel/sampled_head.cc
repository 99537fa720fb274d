#include "src/parallel/sampled_head.h"

#include <string>
#include <utility>
#include <vector>

#include "src/base/philox.h"
#include "src/base/violations.h"
#include "src/graph/op.h"
#include "src/ops/row_exchange.h"
#include "src/ops/sampled_xent.h"
#include "src/ops/shards.h"
#include "src/parallel/model_head.h"

namespace trainyard {
namespace {

class Sampler final : public HeadReplacement {
 public:
  Sampler(const Model& model, const ModelHead& head, const SampledLoss& sampling,
          const Recipe& recipe, Rank rank)
      : HeadReplacement(model, head),
        sampling_(sampling),
        seed_(recipe.seed),
        micro_batches_(recipe.accumulate_steps),
        rank_(rank) {}

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
      const TensorId rows = add(name, *take_rows_op(), {}, {table, classes_}, {name})[0];
      sampled_.tables[table] = {rows, kept_ == kNoTensor ? classes_ : kept_};
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
    TensorId counted = kNoTensor;
    if (rank_.count > 1) {
      counted = add(name + "/gather", *gather_rows_op(),
                    {{"bucket", rows_exchange(0)}, {kRanks, rank_.count}}, {copy_of(target)},
                    {tensor(target).name + "/rows"})[0];
    }
    const int64_t labels = tensor(target).type.shape[0] * rank_.count * micro_batches_;
    const KeptRows kept =
        add_kept_rows(to_.graph, name + ".kept", sampling_.samples + labels, micro_batches_);
    kept_ = kept.kept;
    Attributes attributes{{"classes", tensor(gemm().inputs[1]).type.shape[0]},
                          {"samples", sampling_.samples},
                          {"distribution", sampling_.distribution},
                          {"seed", static_cast<int64_t>(seed_)},
                          {"stream", static_cast<int64_t>(stream_of(name))},
                          {"dtype", std::string(name_of(tensor(gemm().inputs[1]).type.dtype))}};
    if (micro_batches_ > 1) attributes.set("micro_batches", micro_batches_);
    if (const Attribute* ignored = loss().attributes.find("ignore_index")) {
      attributes.set("ignore_index", *ignored);
    }
    const std::vector<TensorId> drawn =
        add(name, *sample_classes_op(), std::move(attributes),
            {copy_of(target), to_.step, counted, kept.kept, kept.micro_step},
            {name + ".classes", name + ".position", name + ".log_expected"});
    classes_ = drawn[0];
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
  const int64_t micro_batches_;
  const Rank rank_;
  SampledModel sampled_;
  TensorId classes_ = kNoTensor, kept_ = kNoTensor;
  TensorId scores_ = kNoTensor, position_ = kNoTensor, log_expected_ = kNoTensor;
};

Status check_sampled_recipe(const Recipe& recipe) {
  Violations violations;
  const auto refuse = [&](const char* field, const std::string& why) {
    violations.add("FIELD_CONFLICT", field, why);
  };
  if (recipe.shard != Shard::kNone) {
    refuse("resources.shard", name_of(recipe.shard) +
                                  " cannot be combined with model.loss: sampled_softmax, which "
                                  "updates single rows of the "
                                  "head; expected shard: none, or the loss softmax_cross_entropy");
  }
  if (recipe.optimizer.type == "adafactor") {
    refuse("recipe.optimizer",
           "adafactor scales by the whole head and model.loss: sampled_softmax updates single rows "
           "of it; expected another optimizer, or the loss softmax_cross_entropy");
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

}  // namespace

Result<SampledModel> sample_head(const Model& model, const Recipe& recipe, Rank rank) {
  if (Status s = check_sampled_recipe(recipe); !s.ok()) return std::move(s).error();
  const HeadUse use{"model.loss", "sampled_softmax", "softmax_cross_entropy"};
  ASSIGN_OR_RETURN(const ModelHead head, find_head(model, use));
  return Sampler(model, head, model.sampling.value(), recipe, rank).sample();
}

}  // namespace trainyard
