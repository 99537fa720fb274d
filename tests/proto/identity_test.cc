// Fails if a field of a spec that determines a run's numbers is missing from the run's identity,
// since a checkpoint of another job would then be accepted. The fields come from the messages'
// descriptors, so a new field that no spec below sets fails too.
#include "src/job/identity.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/convert/spec.h"
#include "src/models/spec_json.h"
#include "tests/proto/spec_text.h"

namespace trainyard {
namespace {

using testing::parse_spec;

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Returns the fields that are deliberately not part of the identity, and the reasons.
const std::map<std::string, std::string>& left_out() {
  static const std::map<std::string, std::string> reasons = {
      {"JobSpec.dataset", "a name; the dataset's content is known by its digest"},
      {"JobSpec.resources", "where and on how much a run computes; a resumed one says it"},
      {"JobSpec.priority", "when a job starts"},
      {"JobSpec.labels", "for people"},
      {"JobSpec.after", "when a job starts"},
      {"InitialWeights.title", "for people"},
      {"ModelSpec.onnx", "spec files only: the client turns it into layers and weights"},
      {"Recipe.evaluate_every_steps", "evaluations read, unless they decide what is kept"},
      {"Recipe.checkpoint_every_steps", "checkpoints read"},
      {"Recipe.keep_checkpoints", "how many are kept"},
      {"Recipe.keep_checkpoints_every_steps", "which are kept"},
      {"Recipe.keep_best_checkpoint", "which are kept: the weights of keep_best are in each"},
      {"Recipe.recompute", "changes no bit"},
      {"Recipe.metrics", "metrics read"},
  };
  return reasons;
}

/// Returns the name in the form "Loss.Huber.delta".
std::string full_name(const FieldDescriptor& field) {
  return field.full_name().substr(std::string_view("trainyard.v1.").size());
}

/// Returns the identity of the run that a spec describes; nothing if the spec is refused.
std::optional<RunIdentity> identity_of(const v1::JobSpec& spec,
                                       const std::string& dataset = "a dataset") {
  const auto engine = to_engine(spec);
  if (!engine.ok()) return std::nullopt;
  return RunIdentity(engine->model, engine->recipe, dataset);
}

/// Returns specs that together set every field, each where it has an effect.
std::vector<v1::JobSpec> specs() {
  const std::string model = "model { mlp { hidden: [4] } }";
  const auto recipe = [&](const std::string& fields) {
    return parse_spec(model + " recipe { steps: 9 " + fields + "}");
  };
  const auto optimizer = [&](const std::string& fields) {
    return recipe("optimizer { learning_rate: 0.1 " + fields + "}");
  };
  const auto schedule = [&](const std::string& fields) {
    return recipe("optimizer { learning_rate: 0.1 } schedule { " + fields + "}");
  };
  std::vector<v1::JobSpec> specs = {
      recipe(R"(
        batch_size: 8 seed: 1 shuffle: true drop_last: true validation_split: 0.1
        split { group: "g" time: "t" folds: 5 fold: 1 } context_length: 16 packing: true normalize: IMAGENET
        precision: TF32 evaluate_every_steps: 2 checkpoint_every_steps: 2 keep_checkpoints: 3
        keep_checkpoints_every_steps: 4 keep_best_checkpoint: true recompute: BLOCKS
        accumulate_steps: 2 clip_gradients { norm: 1 } ema { decay: 0.9 } metrics: "f1_macro"
        optimizer { type: SGD learning_rate: 0.1 momentum: 0.9 nesterov: true weight_decay: 0.1
                    weight_decay_on: MATRICES }
        parameter_groups { match: "fc1.*" freeze: false learning_rate_factor: 2 weight_decay: 0.2 }
        initial_weights { model: "m" rename { key: "a" value: "b" } include: "a*" exclude: "b*"
                          skip_mismatched: true partial: true title: "SmolLM2" }
        lora { rank: 2 alpha: 3 dropout: 0.1 targets: "fc1" rank_scaling: "sqrt" }
        frozen_storage: "bf16")"),
      recipe("optimizer { learning_rate: 0.1 } clip_gradients { value: 1 } initial_weights { job: "
             "\"j\" }"),
      recipe("optimizer { learning_rate: 0.1 } initial_weights { path: \"p\" }"),
      recipe(R"(optimizer { learning_rate: 0.1 } evaluate_every_steps: 2
        keep_best { metric: "val/loss" mode: MIN })"),
      recipe(R"(optimizer { learning_rate: 0.1 }
        early_stopping { metric: "val/loss" mode: MIN patience: 3 min_delta: 0.1 })"),
      parse_spec(model + " recipe { epochs: 2 optimizer { learning_rate: 0.1 } }"),
      optimizer("type: ADAMW beta1: 0.8 beta2: 0.9 epsilon: 1e-7"),
      optimizer("type: RMSPROP alpha: 0.9 centered: true"),
      optimizer("type: ADAFACTOR beta2_decay: -0.7 clip_threshold: 2 scale_min: 0.01"),
      optimizer("type: MUON newton_schulz_steps: 4 adjust_rate: MATCH_RMS_ADAMW "
                "fallback_learning_rate: 0.2"),
      schedule("type: LINEAR"),
      schedule("type: STEP warmup_steps: 2 step_size: 3 gamma: 0.2"),
      schedule("type: MULTI_STEP milestones: [2, 4]"),
      schedule("type: POLYNOMIAL min_learning_rate: 0.01 power: 2"),
      schedule("type: ONE_CYCLE pct_start: 0.2 div_factor: 5 final_div_factor: 10"),
      parse_spec(R"(
        model {
          blocks { name: "unit" inputs: "x" parameters: "w" defaults { key: "w" value { number_value: 2 } }
                   layers { name: "a" gemm { units: 3 } inputs: "x" bind { key: "units" value: "w" } } }
          layers { name: "first" inputs: "input"
                   use { block: "unit" repeat: 2 with { key: "w" value { number_value: 5 } } } }
          layers { gemm {} }
          loss { huber { delta: 2 } }
          target: INPUT
        }
        recipe { steps: 9 optimizer { learning_rate: 0.1 } }
        dataset { name: "d" } resources { device: CPU threads: 2 gpus: 1 } priority: 1
        labels { key: "a" value: "b" } after { job: "j" on: ANY })"),
  };
  return specs;
}

/// Sets each field.
void fill(Message& message);

/// Gives a set field another value or one more entry.
void change(Message& message, const FieldDescriptor& field) {
  const auto* r = message.GetReflection();
  if (field.is_map()) {
    auto* entry = r->AddMessage(&message, &field);
    const FieldDescriptor* key = entry->GetDescriptor()->map_key();
    const FieldDescriptor* value = entry->GetDescriptor()->map_value();
    entry->GetReflection()->SetString(entry, key, "another");
    if (value->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      entry->GetReflection()->SetString(entry, value, "one");
    } else {
      change(*entry, *value);
    }
    return;
  }
  if (field.is_repeated()) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return r->AddString(&message, &field, "another");
      case FieldDescriptor::CPPTYPE_INT64:
        return r->AddInt64(&message, &field, 17);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r->AddDouble(&message, &field, 0.75);
      default: {
        ASSERT_EQ(field.cpp_type(), FieldDescriptor::CPPTYPE_MESSAGE) << field.full_name();
        const int count = r->FieldSize(message, &field);
        ASSERT_GT(count, 0) << field.full_name();
        const Message& last = r->GetRepeatedMessage(message, &field, count - 1);
        std::unique_ptr<Message> copy(last.New());
        copy->CopyFrom(last);
        r->AddMessage(&message, &field)->CopyFrom(*copy);
        return;
      }
    }
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return r->SetString(&message, &field, r->GetString(message, &field) + "2");
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->SetBool(&message, &field, !r->GetBool(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return r->SetInt32(&message, &field, r->GetInt32(message, &field) + 2);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->SetInt64(&message, &field, r->GetInt64(message, &field) + 2);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->SetUInt64(&message, &field, r->GetUInt64(message, &field) + 2);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->SetDouble(&message, &field, r->GetDouble(message, &field) / 2 + 0.0625);
    case FieldDescriptor::CPPTYPE_ENUM: {
      // The unspecified value may equal the first or the default value, so only the last two are
      // used.
      const auto* type = field.enum_type();
      const int last = type->value(type->value_count() - 1)->number();
      const int before = type->value(type->value_count() - 2)->number();
      const bool at_last = r->GetEnumValue(message, &field) == last;
      return r->SetEnumValue(&message, &field, at_last ? before : last);
    }
    default: {
      auto* value = dynamic_cast<google::protobuf::Value*>(r->MutableMessage(&message, &field));
      ASSERT_NE(value, nullptr) << field.full_name();
      value->set_number_value(value->number_value() + 2);
    }
  }
}

void fill(Message& message) {
  const Descriptor* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) change(message, *type->field(i));
}

class FieldWalk {
 public:
  explicit FieldWalk(v1::JobSpec spec) : spec_(std::move(spec)), before_(*identity_of(spec_)) {}

  /// Changes each set field in turn and checks the identity.
  void run() { walk(spec_, {}); }
  const std::set<std::string>& seen() const { return seen_; }

 private:
  void walk(Message& message, const std::string& path) {
    std::vector<const FieldDescriptor*> fields;
    const auto* r = message.GetReflection();
    r->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string at = path.empty() ? field->name() : path + "." + field->name();
      const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                          !field->is_map() &&
                          field->message_type() != google::protobuf::Value::descriptor();
      if (!nested || left_out().contains(full_name(*field))) {
        try_change(message, *field, at);
        continue;
      }
      seen_.insert(full_name(*field));
      if (!field->is_repeated()) {
        walk(*r->MutableMessage(&message, field), at);
        continue;
      }
      for (int i = 0; i < r->FieldSize(message, field); ++i) {
        walk(*r->MutableRepeatedMessage(&message, field, i), at + "[" + std::to_string(i) + "]");
      }
      try_change(message, *field, at);
    }
  }

  void try_change(Message& message, const FieldDescriptor& field, const std::string& at) {
    const std::string name = full_name(field);
    std::unique_ptr<Message> kept(message.New());
    kept->CopyFrom(message);
    const bool nested = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                        !field.is_repeated() &&
                        field.message_type() != google::protobuf::Value::descriptor();
    if (nested) {
      message.GetReflection()->ClearField(&message, &field);
    } else {
      change(message, field);
    }
    const std::optional<RunIdentity> after = identity_of(spec_);
    message.CopyFrom(*kept);
    if (!after) return;  // the spec with this value is refused; another spec must cover the field
    seen_.insert(name);
    const std::string difference = after->difference(before_.record());
    const bool decides = spec_.recipe().has_keep_best() || spec_.recipe().has_early_stopping();
    if (left_out().contains(name) && !(decides && name == "Recipe.evaluate_every_steps")) {
      EXPECT_EQ(after->record().digest, before_.record().digest) << at;
      EXPECT_EQ(difference, "") << at;
      return;
    }
    EXPECT_NE(after->record().digest, before_.record().digest) << at;
    EXPECT_NE(difference, "") << at;
    if (!at.starts_with("dataset") && !renamed().contains(name)) {
      EXPECT_EQ(difference.substr(0, at.size()), at) << "the field is reported by another name";
    }
  }

  /// Returns the fields that a difference reports under another name than the spec's.
  static const std::set<std::string>& renamed() {
    static const std::set<std::string> names = {"InitialWeights.job", "InitialWeights.model",
                                                "InitialWeights.path", "Optimizer.type"};
    return names;
  }

  v1::JobSpec spec_;
  RunIdentity before_;
  std::set<std::string> seen_;
};

/// Adds the names of all fields of a message and of the messages in it.
void add_fields(const Descriptor& type, std::set<std::string>& names) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!names.insert(full_name(field)).second || left_out().contains(full_name(field))) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_map() &&
        field.message_type() != google::protobuf::Value::descriptor()) {
      add_fields(*field.message_type(), names);
    }
  }
}

// Returns one spec for each preset, layer, loss and augmentation, with all of its settings.
std::vector<v1::JobSpec> specs_of_each_kind() {
  std::vector<v1::JobSpec> out;
  const v1::JobSpec plain = specs().front();
  const auto each = [&](const Descriptor& type, const char* oneof, auto message_in) {
    const auto* kinds = type.FindOneofByName(oneof);
    for (int i = 0; i < kinds->field_count(); ++i) {
      // `use` refers to a block; specs() covers blocks.
      if (kinds->field(i)->name() == "use") continue;
      v1::JobSpec& spec = out.emplace_back(plain);
      Message& message = message_in(spec);
      fill(*message.GetReflection()->MutableMessage(&message, kinds->field(i)));
    }
  };
  each(*v1::ModelSpec::descriptor(), "preset",
       [](v1::JobSpec& spec) -> Message& { return *spec.mutable_model(); });
  each(*v1::Layer::descriptor(), "op", [](v1::JobSpec& spec) -> Message& {
    spec.mutable_model()->Clear();
    return *spec.mutable_model()->add_layers();
  });
  each(*v1::Loss::descriptor(), "kind",
       [](v1::JobSpec& spec) -> Message& { return *spec.mutable_model()->mutable_loss(); });
  each(*v1::Augmentation::descriptor(), "kind",
       [](v1::JobSpec& spec) -> Message& { return *spec.mutable_recipe()->add_augmentation(); });
  return out;
}

TEST(RunIdentity, ChangesWithEveryFieldOfASpecOrThereIsAReason) {
  std::set<std::string> seen;
  for (const auto& list : {specs(), specs_of_each_kind()}) {
    for (const v1::JobSpec& spec : list) {
      ASSERT_TRUE(to_engine(spec).ok()) << spec.DebugString() << to_engine(spec).error().message;
      FieldWalk walk(spec);
      walk.run();
      seen.insert(walk.seen().begin(), walk.seen().end());
    }
  }
  std::set<std::string> all;
  add_fields(*v1::JobSpec::descriptor(), all);
  EXPECT_GT(all.size(), 200u);
  for (const std::string& name : all) {
    // to_engine() refuses what only clients read.
    if (name == "ModelSpec.onnx" || name == "ModelSpec.pretrained" || name == "Lora.adapter") {
      continue;
    }
    EXPECT_TRUE(seen.contains(name)) << name << ": no spec of this test has it";
  }
  for (const auto& [name, reason] : left_out()) {
    EXPECT_TRUE(all.contains(name)) << name << " is no field any more";
  }
}

RunIdentity plain_identity() { return *identity_of(specs().front()); }

TEST(RunIdentity, IdentifiesTheDatasetByItsDigest) {
  const RunIdentity other = *identity_of(specs().front(), "another dataset");
  EXPECT_EQ(other.difference(plain_identity().record()),
            "dataset: the checkpoint has a dataset, the job has another dataset");
}

TEST(RunIdentity, NamesEachFieldThatDiffers) {
  v1::JobSpec spec = specs().front();
  spec.mutable_recipe()->set_seed(2);
  spec.mutable_recipe()->add_augmentation()->mutable_random_crop()->set_padding(3);
  spec.mutable_model()->mutable_mlp()->set_hidden(0, 5);
  EXPECT_EQ(identity_of(spec)->difference(plain_identity().record()),
            "model.mlp.hidden: the checkpoint has [4], the job has [5]; "
            "recipe.augmentation[0]: the checkpoint has nothing, the job has "
            R"({"random_crop":{"padding":3}}; )"
            "recipe.seed: the checkpoint has 1, the job has 2");
}

// A missing field counts as its default, since each new field would else invalidate the checkpoints
// of all running jobs at an upgrade.
TEST(RunIdentity, AMissingFieldMeansItsDefault) {
  const RunIdentity job = plain_identity();
  nlohmann::json description = nlohmann::json::parse(job.record().description);
  EXPECT_EQ(description["recipe"].erase("augmentation"), 1u);  // it has its default value here
  EXPECT_EQ(description["recipe"]["optimizer"].erase("beta1"), 1u);
  EXPECT_EQ(job.difference({"1:of then", description.dump()}), "");
  EXPECT_EQ(description["recipe"].erase("seed"), 1u);  // it does not have its default value
  EXPECT_EQ(job.difference({"1:of then", description.dump()}),
            "recipe.seed: the checkpoint has 0, the job has 1");
}

// A changed default would change the meaning of a checkpoint that lacks the field.
TEST(RunIdentity, DefaultsOfARecipeDoNotChange) {
  nlohmann::json now = fields_to_json(Recipe());
  const auto then = nlohmann::json::parse(R"({
    "epochs": 0, "steps": 0, "batch_size": 64, "seed": 0, "shuffle": true, "drop_last": true,
    "validation_split": 0, "split.group": "", "split.time": "", "split.folds": 0, "split.fold": 0,
    "context_length": 0, "packing": true, "normalize": "dataset", "precision": "fp32", "accumulate_steps": 1, "clip_gradients.norm": 0,
    "clip_gradients.value": 0, "ema.decay": 0, "parameter_groups": [], "augmentation": [],
    "optimizer": {"type": "sgd", "learning_rate": 0.01, "momentum": 0, "nesterov": false, "beta1": 0.9,
      "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0, "weight_decay_on": "all", "alpha": 0.99,
      "centered": false, "beta2_decay": -0.8, "clip_threshold": 1, "scale_min": 1e-3,
      "newton_schulz_steps": 5, "adjust_rate": "original", "fallback_learning_rate": 0},
    "schedule": {"type": "constant", "warmup_steps": 0, "step_size": 0, "gamma": 0.1, "milestones": [],
      "min_learning_rate": 0, "power": 1, "pct_start": 0.3, "div_factor": 25, "final_div_factor": 1e4},
    "keep_best": {"metric": "", "mode": ""},
    "early_stopping": {"metric": "", "patience": 1, "min_delta": 0, "mode": ""},
    "initial_weights": {"source": "", "rename": {}, "include": [], "exclude": [],
      "skip_mismatched": false, "partial": false},
    "frozen_storage": "auto",
    "lora": {"rank": 0, "alpha": 0, "dropout": 0, "targets": [], "rank_scaling": "linear"}})");
  EXPECT_EQ(now, then);
}

TEST(RunIdentity, AnotherRuleIsRefusedAsSuch) {
  for (const char* digest : {"2:abc", "abc"}) {
    EXPECT_EQ(plain_identity().difference({digest, "{}"}), "written by another version") << digest;
  }
}

TEST(RunIdentity, RecognizesARunWithOtherArithmetic) {
  const RunIdentity job = plain_identity();
  nlohmann::json description = nlohmann::json::parse(job.record().description);
  description["arithmetic"] = "denormal numbers as they are";
  const RunRecord before{"1:of then", description.dump()};
  EXPECT_EQ(job.difference(before),
            "arithmetic: the checkpoint has denormal numbers as they are, the job has denormal "
            "numbers count as 0");
  EXPECT_TRUE(job.is_in_another_arithmetic(before));
  EXPECT_FALSE(job.is_in_another_arithmetic(job.record()));
  description["recipe"]["seed"] = 2;
  EXPECT_FALSE(job.is_in_another_arithmetic({"1:of then", description.dump()})) << "both differ";
  description["arithmetic"] = kArithmetic;
  EXPECT_FALSE(job.is_in_another_arithmetic({"1:of then", description.dump()})) << "the seed alone";
}

}  // namespace
}  // namespace trainyard
