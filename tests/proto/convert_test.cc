// Fails if the engine reads a spec differently from its meaning in the API, or if a refusal does
// not name the field as the user wrote it.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proto/convert/data.h"
#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "src/data/ingest/formats.h"
#include "src/data/limits.h"
#include "src/job/augmentation.h"
#include "src/models/layer.h"
#include "src/models/loss.h"
#include "src/models/preset.h"
#include "tests/proto/spec_text.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard {
namespace {

using testing::parse_spec;

bool names_field(const Error& error, const std::string& field) {
  for (const FieldViolation& v : error.violations) {
    if (v.field == field) return true;
  }
  return false;
}

constexpr const char* kRecipe = "recipe { epochs: 2 optimizer { learning_rate: 0.1 } }";

TEST(ConvertSpec, PresetAndDefaults) {
  const auto spec = to_engine(parse_spec(
      std::string("model { mlp { hidden: [512, 256] activation: GELU dropout: 0.5 } }") + kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.preset, "mlp");
  EXPECT_EQ(spec->model.parameters.get_ints("hidden", {}), (std::vector<int64_t>{512, 256}));
  EXPECT_EQ(spec->model.parameters.get_string("activation", ""), "gelu");
  EXPECT_EQ(spec->model.parameters.get_float("dropout", 0), 0.5);
  EXPECT_EQ(spec->recipe.batch_size, 64);
  EXPECT_EQ(spec->recipe.optimizer.type, "sgd");
  EXPECT_TRUE(spec->recipe.shuffle);
  EXPECT_TRUE(spec->recipe.drop_last);
}

TEST(ConvertSpec, ShardIsOneValueOrAList) {
  const auto shard_of = [](const std::string& shards) {
    const auto spec = to_engine(parse_spec(std::string("model { mlp { hidden: 4 } } ") + kRecipe +
                                           " resources { " + shards + " }"));
    return spec.ok() ? name_of(spec->recipe.shard) : spec.error().message;
  };
  EXPECT_EQ(shard_of(""), "none");
  EXPECT_EQ(shard_of("shard: NONE"), "none");
  EXPECT_EQ(shard_of("shard: HEAD"), "head");
  EXPECT_EQ(shard_of("shard: [HEAD, OPTIMIZER]"), "[optimizer, head]");
  EXPECT_EQ(shard_of("shard: MLP"), "mlp");
  EXPECT_EQ(shard_of("shard: [MLP, OPTIMIZER, HEAD]"), "[optimizer, head, mlp]");
  EXPECT_EQ(shard_of("shard: PARAMETERS"), "parameters");
  EXPECT_EQ(shard_of("shard: [OPTIMIZER, PARAMETERS]"), "parameters") << "it says nothing more";
  EXPECT_EQ(shard_of("shard: [PARAMETERS, HEAD]"), "[head, parameters]");
  EXPECT_EQ(shard_of("shard: [NONE, HEAD]"),
            "resources.shard[0]: none cannot be combined with other values; expected either "
            "none or the others");
  EXPECT_EQ(
      shard_of("shard: 77"),
      "resources.shard[0]: 77 is not known, expected none, optimizer, head, parameters or mlp");
  EXPECT_EQ(shard_of("cluster: 'cluster' nodes: 2 device: CPU shard: MLP"),
            "resources.shard: mlp is for the GPUs of one node, whose links are fast enough for it; "
            "expected parameters, optimizer or none, or resources.nodes: 1");
  // Each part of a combined value becomes an element of the list.
  EXPECT_EQ(to_proto(Shard::kOptimizer | Shard::kHead),
            (std::vector{v1::Resources::OPTIMIZER, v1::Resources::HEAD}));
  EXPECT_EQ(to_proto(Shard::kHead | Shard::kParameters),
            (std::vector{v1::Resources::HEAD, v1::Resources::PARAMETERS}));
  EXPECT_EQ(to_proto(Shard::kNone), std::vector{v1::Resources::NONE});
}

TEST(ConvertSpec, ExplicitFalseIsKept) {
  const auto spec = to_engine(
      parse_spec("model { mlp { hidden: 4 } } recipe { epochs: 2 shuffle: false drop_last: false "
                 "optimizer { learning_rate: 0.1 } }"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_FALSE(spec->recipe.shuffle);
  EXPECT_FALSE(spec->recipe.drop_last);
}

TEST(ConvertSpec, LayersKeepOnnxNamesAndAttributes) {
  const auto spec = to_engine(parse_spec(std::string(R"(model {
    layers { name: "c" conv { out_channels: 8 kernel_shape: [3, 3] bias: false } }
    layers { global_average_pool {} }
    layers { name: "sum" inputs: ["c", "input"] add {} }
    layers { batch_normalization { epsilon: 0.001 } } })") +
                                         kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& layers = spec->model.layers;
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].op, "Conv");
  EXPECT_EQ(layers[0].attributes.get_int("bias", 1), 0);
  EXPECT_EQ(layers[1].op, "GlobalAveragePool");
  EXPECT_EQ(layers[2].inputs, (std::vector<std::string>{"c", "input"}));
  EXPECT_EQ(layers[3].op, "BatchNormalization");
  EXPECT_EQ(layers[3].attributes.get_float("epsilon", 0), 0.001);
}

TEST(ConvertSpec, BlocksKeepTheirValuesAndTypes) {
  const auto spec = to_engine(parse_spec(std::string(R"(model {
    blocks { name: "b" inputs: ["x"] parameters: ["units", "ratio"]
             defaults { key: "ratio" value { number_value: 0.5 } }
             layers { gemm {} bind { key: "units" value: "units" } }
             layers { dropout {} bind { key: "ratio" value: "ratio" } } }
    layers { name: "u" use { block: "b" repeat: 3 with { key: "units" value { number_value: 8 } } } }
    layers { gemm { initializer: NORMAL initializer_std: 0.02 } } })") +
                                         kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const BlockSpec& block = spec->model.blocks.at(0);
  EXPECT_EQ(block.inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(block.defaults.get_float("ratio", 0), 0.5);
  EXPECT_EQ(block.layers.at(1).bind.at("ratio"), "ratio");
  const LayerSpec& use = spec->model.layers.at(0);
  EXPECT_EQ(use.op, "Use");
  EXPECT_EQ(use.block, "b");
  EXPECT_EQ(use.repeat, 3);
  EXPECT_EQ(use.attributes.get_int("units", 0), 8);
  EXPECT_EQ(spec->model.layers.at(1).attributes.get_string("initializer", ""), "normal");
  const auto null = to_engine(parse_spec(std::string(R"(model {
    layers { use { block: "b" with { key: "p" value { null_value: NULL_VALUE } } } } })") +
                                         kRecipe));
  ASSERT_FALSE(null.ok());
  EXPECT_TRUE(names_field(null.error(), "model.layers[0].use.with.p"));
}

// Returns whether the message has a field for each rule. It may have more: MaxPool and AveragePool
// share one message.
bool has_all(const google::protobuf::Descriptor& message, const std::vector<AttributeRule>& rules) {
  for (const AttributeRule& rule : rules) {
    if (message.FindFieldByName(std::string(rule.name)) == nullptr) return false;
  }
  return true;
}

// A layer or preset that only the API or only the engine has would be unusable.
TEST(ConvertSpec, WireAndEngineKnowTheSameLayersLossesAndPresets) {
  const auto* ops = v1::Layer::descriptor()->FindOneofByName("op");
  EXPECT_EQ(static_cast<size_t>(ops->field_count()), layer_kinds().size() + 1);
  for (int i = 0; i < ops->field_count(); ++i) {
    const auto* field = ops->field(i);
    if (field->name() == "use") continue;  // it refers to a block and is no layer itself
    const auto spec =
        to_engine(parse_spec("model { layers { " + field->name() + " {} } }" + kRecipe));
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    const LayerKind* kind = find_layer_kind(spec->model.layers[0].op);
    ASSERT_NE(kind, nullptr) << field->name() << " became " << spec->model.layers[0].op;
    EXPECT_EQ(kind->field, field->name());
    EXPECT_TRUE(has_all(*field->message_type(), kind->attributes)) << field->name();
  }
  const auto* losses = v1::Loss::descriptor()->FindOneofByName("kind");
  EXPECT_EQ(static_cast<size_t>(losses->field_count()), loss_kinds().size());
  for (int i = 0; i < losses->field_count(); ++i) {
    const auto* field = losses->field(i);
    const auto spec = to_engine(
        parse_spec("model { mlp {} loss { " + field->name() + " {} } }" + std::string(kRecipe)));
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    const LossKind* kind = find_loss_kind(spec->model.loss.op);
    ASSERT_NE(kind, nullptr) << field->name() << " became " << spec->model.loss.op;
    EXPECT_EQ(kind->field, field->name());
    EXPECT_TRUE(has_all(*field->message_type(), kind->attributes)) << field->name();
  }
  const auto* presets = v1::ModelSpec::descriptor()->FindOneofByName("preset");
  EXPECT_EQ(static_cast<size_t>(presets->field_count()), preset_kinds().size());
  for (int i = 0; i < presets->field_count(); ++i) {
    const auto* field = presets->field(i);
    const PresetKind* kind = find_preset_kind(field->name());
    ASSERT_NE(kind, nullptr) << field->name();
    EXPECT_TRUE(has_all(*field->message_type(), kind->parameters)) << field->name();
  }
}

TEST(ConvertSpec, WireAndEngineKnowTheSameAugmentations) {
  const auto* kinds = v1::Augmentation::descriptor()->FindOneofByName("kind");
  ASSERT_EQ(static_cast<size_t>(kinds->field_count()), augmentation_kinds().size());
  for (int i = 0; i < kinds->field_count(); ++i) {
    const auto* field = kinds->field(i);
    const AugmentationKind& kind = augmentation_kinds()[static_cast<size_t>(i)];
    EXPECT_EQ(kind.field, field->name());
    EXPECT_TRUE(has_all(*field->message_type(), kind.attributes)) << field->name();
    EXPECT_EQ(static_cast<size_t>(field->message_type()->field_count()), kind.attributes.size());
  }
}

TEST(ConvertSpec, ValuesOfAnyTypeKeepTheirs) {
  const auto read = [](const std::string& model) {
    return to_engine(parse_spec("model { " + model + " }" + kRecipe));
  };
  const auto embedding = [&](const std::string& value) {
    const auto spec = read("mlp { embedding { " + value + " } }");
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return *spec->model.parameters.find("embedding");
  };
  EXPECT_EQ(embedding("string_value: 'auto'"), Attribute("auto"));
  EXPECT_EQ(embedding("number_value: 8"), Attribute(int64_t{8}));
  EXPECT_EQ(embedding("struct_value { fields { key: 'cut' value { number_value: 4 } } }"),
            Attribute(NamedInts{{"cut", 4}}));
  const std::string fraction = "struct_value { fields { key: 'cut' value { number_value: 4.5 } } }";
  EXPECT_EQ(embedding(fraction), Attribute(NamedNumbers{{"cut", 4.5}}))
      << "the model refuses it, by its rules";
  const auto wrong = read(
      "mlp { embedding { struct_value { fields { key: 'cut' value { string_value: 'x' } } } } }");
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(names_field(wrong.error(), "model.mlp.embedding"));

  const auto weights = [&](const std::string& field) {
    const auto spec = read("mlp {} loss { softmax_cross_entropy { " + field + " } }");
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return *spec->model.loss.attributes.find("class_weights");
  };
  EXPECT_EQ(weights("class_weights { string_value: 'balanced' }"), Attribute("balanced"));
  EXPECT_EQ(weights("class_weights { list_value { values { number_value: 1 } values { "
                    "number_value: 2.5 } } }"),
            Attribute(std::vector<double>{1, 2.5}));
  EXPECT_EQ(
      weights("class_weights { struct_value { fields { key: 'cat' value { number_value: 2 } } "
              "fields { key: 'dog' value { number_value: 1 } } } }"),
      Attribute(NamedInts{{"cat", 2}, {"dog", 1}}));
  EXPECT_EQ(
      weights("class_weights { struct_value { fields { key: 'cat' value { number_value: 2 } } "
              "fields { key: 'dog' value { number_value: 0.5 } } } }"),
      Attribute(NamedNumbers{{"cat", 2}, {"dog", 0.5}}));
}

TEST(ConvertSpec, LossesKeepTheirSettings) {
  const auto spec = to_engine(parse_spec(std::string(R"(model {
    autoencoder { type: DENSE hidden: 8 } target: INPUT
    loss { softmax_cross_entropy { label_smoothing: 0.25 ignore_index: 0
             class_weights { list_value { values { number_value: 1 } values { number_value: 0.5 } } } } } })") +
                                         kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const Attributes& loss = spec->model.loss.attributes;
  EXPECT_EQ(loss.get_float("label_smoothing", 0), 0.25);
  EXPECT_EQ(loss.get_floats("class_weights", {}), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(loss.get_int("ignore_index", -1), 0);  // an explicit 0 is a class
  EXPECT_EQ(spec->model.target, "input");
  EXPECT_EQ(spec->model.parameters.get_string("type", ""), "dense");
  const auto silent = to_engine(parse_spec(std::string("model { mlp {} }") + kRecipe));
  EXPECT_TRUE(silent->model.loss.op.empty());
  EXPECT_TRUE(silent->model.target.empty());
  const auto empty = to_engine(parse_spec(std::string("model { mlp {} loss {} }") + kRecipe));
  ASSERT_FALSE(empty.ok());
  EXPECT_TRUE(names_field(empty.error(), "model.loss"));
}

TEST(ConvertSpec, ASampledLossKeepsItsSettings) {
  const auto spec = to_engine(parse_spec(
      std::string("model { mlp { hidden: 4 } loss { sampled_softmax { samples: 8192 distribution: "
                  "'uniform' ignore_index: 0 } } }") +
      kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.loss.op, "SampledSoftmaxCrossEntropyLoss");
  EXPECT_EQ(spec->model.loss.attributes.get_int("samples", 0), 8192);
  EXPECT_EQ(spec->model.loss.attributes.get_string("distribution", ""), "uniform");
  EXPECT_EQ(spec->model.loss.attributes.get_int("ignore_index", -1), 0);
}

TEST(ConvertSpec, ASampledLossMayBeOfSeveralNodes) {
  const auto spec = to_engine(
      parse_spec(std::string("model { mlp { hidden: 4 } loss { sampled_softmax { samples: 8 } } } "
                             "resources { cluster: 'cluster' nodes: 2 } ") +
                 kRecipe));
  EXPECT_TRUE(spec.ok()) << spec.error().message;
}

TEST(ConvertSpec, AnEmbeddingMayBeSparse) {
  const auto spec = to_engine(parse_spec(R"(
    model { layers { embedding { embedding_dim: 4 sparse: true } } layers { linear {} } }
    recipe { steps: 1 optimizer { learning_rate: 0.1 } })"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.layers[0].attributes.get_int("sparse", -1), 1);
}

TEST(ConvertSpec, GpusOfSeveralNodesShareTheBatch) {
  const auto refusal = [](const std::string& resources, int batch = 48) {
    const auto spec = to_engine(parse_spec(
        "model { mlp { hidden: 4 } } recipe { epochs: 1 batch_size: " + std::to_string(batch) +
        " optimizer { learning_rate: 0.1 } } resources { cluster: 'cluster' " + resources + " }"));
    return spec.ok() ? "" : spec.error().message;
  };
  EXPECT_EQ(refusal("device: GPU nodes: 2 gpus: 4"), "");
  EXPECT_EQ(refusal("device: GPU nodes: 3 gpus: 4 shard: PARAMETERS"), "");
  EXPECT_EQ(refusal("nodes: 2"), "") << "the cluster says which device";
  // Nodes and GPUs are checked together; each of the two numbers would divide the batch size.
  EXPECT_EQ(refusal("device: GPU nodes: 8 gpus: 4"),
            "resources.nodes: 8 nodes of 4 GPUs, 32 in all, does not divide recipe.batch_size 48, "
            "expected one of 1, 2, 3, 4, 6, 8, 12, 16, 24, 48");
  EXPECT_EQ(refusal("device: GPU nodes: 16 gpus: 8", 4096),
            "resources.nodes: 16 nodes of 8 GPUs are 128 in all, expected at most 64");
  EXPECT_NE(refusal("device: CPU nodes: 2 gpus: 4").find("resources.gpus: 4 needs device: gpu"),
            std::string::npos);
  EXPECT_NE(refusal("device: GPU nodes: 2 gpus: 2 shard: HEAD")
                .find("resources.shard: head is for the GPUs of one node"),
            std::string::npos);
}

TEST(ConvertSpec, TextModels) {
  const auto spec = to_engine(parse_spec(R"(
    model { layers { lstm { hidden_size: 3 direction: "reverse" } } layers { gru { hidden_size: 2 } }
            layers { embedding_bag { embedding_dim: 4 mode: SUM } } }
    recipe { steps: 1 context_length: 12 optimizer { learning_rate: 0.1 } })"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.layers[0].op, "LSTM");
  EXPECT_EQ(spec->model.layers[0].attributes.get_string("direction", ""), "reverse");
  EXPECT_EQ(spec->model.layers[1].op, "GRU");
  EXPECT_EQ(spec->model.layers[2].op, "EmbeddingBag");
  EXPECT_EQ(spec->model.layers[2].attributes.get_string("mode", ""), "sum");
  EXPECT_EQ(spec->recipe.context_length, 12);
}

TEST(ConvertSpec, AdamwDecaysByDefaultAsInPyTorch) {
  const auto spec = to_engine(parse_spec(
      "model { lenet5 {} } recipe { steps: 9 optimizer { type: ADAMW learning_rate: 0.001 } }"));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->recipe.optimizer.weight_decay, 0.01);
  EXPECT_EQ(spec->recipe.steps, 9);
}

TEST(ConvertSpec, RecipesExpressAllSettingsOfTheEngine) {
  const auto spec = to_engine(parse_spec(R"(model { lenet5 {} } recipe {
    steps: 100 batch_size: 64 accumulate_steps: 4 validation_split: 0.1 precision: BF16
    normalize: MINUS_ONE_TO_ONE
    split { group: "patient" folds: 5 fold: 2 }
    optimizer { type: MUON learning_rate: 0.02 fallback_learning_rate: 0.001
                adjust_rate: MATCH_RMS_ADAMW weight_decay_on: MATRICES }
    schedule { type: MULTI_STEP milestones: [10, 20] gamma: 0.5 warmup_steps: 3 }
    clip_gradients { norm: 1 }
    ema { decay: 0.99 }
    parameter_groups { match: "conv*" freeze: true }
    parameter_groups { match: "*.bias" weight_decay: 0 learning_rate_factor: 2 }
    keep_best { metric: "val/accuracy" }
    early_stopping { metric: "val/loss" mode: MIN patience: 5 min_delta: 0.001 }
    initial_weights { job: "digits-1" include: "conv*" exclude: ["*.bias"] skip_mismatched: true
                      partial: true rename { key: "net." value: "" } }
    lora { rank: 4 dropout: 0.1 targets: ["fc*", "code"] }
    metrics: ["top_2_accuracy", "confusion_matrix"] })"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const Recipe& r = spec->recipe;
  EXPECT_EQ(r.optimizer.type, "muon");
  EXPECT_EQ(r.optimizer.momentum, 0.95);
  EXPECT_TRUE(r.optimizer.nesterov);
  EXPECT_EQ(r.optimizer.weight_decay, 0.1);
  EXPECT_EQ(r.optimizer.weight_decay_on, "matrices");
  EXPECT_EQ(r.optimizer.adjust_rate, "match_rms_adamw");
  EXPECT_EQ(r.optimizer.fallback_learning_rate, 0.001);
  EXPECT_EQ(r.schedule.type, "multi_step");
  EXPECT_EQ(r.schedule.milestones, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(r.split_group, "patient");
  EXPECT_EQ(r.split_time, "");
  EXPECT_EQ(r.split_folds, 5);
  EXPECT_EQ(r.split_fold, 2);
  EXPECT_EQ(r.accumulate_steps, 4);
  EXPECT_EQ(r.precision, Precision::kBf16);
  EXPECT_EQ(r.clip_norm, 1);
  EXPECT_EQ(r.clip_value, 0);
  EXPECT_EQ(r.ema_decay, 0.99);
  ASSERT_EQ(r.parameter_groups.size(), 2u);
  EXPECT_EQ(r.parameter_groups[0].freeze, true);
  EXPECT_FALSE(r.parameter_groups[0].weight_decay.has_value());
  EXPECT_EQ(r.parameter_groups[1].weight_decay, 0.0);
  EXPECT_EQ(r.parameter_groups[1].learning_rate_factor, 2.0);
  EXPECT_EQ(r.keep_best.metric, "val/accuracy");
  EXPECT_EQ(r.keep_best.mode, "");
  EXPECT_EQ(r.early_stopping.mode, "min");
  EXPECT_EQ(r.early_stopping.patience, 5);
  EXPECT_EQ(r.initial_weights.source, "digits-1");
  EXPECT_TRUE(r.initial_weights.skip_mismatched);
  EXPECT_TRUE(r.initial_weights.partial);
  EXPECT_EQ(r.normalize, "minus_one_to_one");
  EXPECT_EQ(r.initial_weights.rename.at("net."), "");
  EXPECT_EQ(r.lora.rank, 4);
  EXPECT_EQ(r.lora.alpha, 4) << "the rank, where nothing is said";
  EXPECT_EQ(r.lora.dropout, 0.1);
  EXPECT_EQ(r.lora.targets, (std::vector<std::string>{"fc*", "code"}));
  EXPECT_EQ(r.metrics.size(), 2u);
}

TEST(ConvertSpec, InvalidRecipesAreRefusedByField) {
  const auto spec = to_engine(parse_spec(R"(model { lenet5 {} } recipe {
    steps: 1 accumulate_steps: 0
    optimizer { type: LION learning_rate: 0.1 epsilon: 1e-8 }
    schedule { type: LINEAR power: 2 }
    clip_gradients { norm: 1 value: 1 }
    ema { }
    keep_best { }
    early_stopping { metric: "val/loss" }
    initial_weights { } lora { } })"));
  ASSERT_FALSE(spec.ok());
  for (const char* field :
       {"recipe.accumulate_steps", "recipe.optimizer.epsilon", "recipe.schedule.power",
        "recipe.clip_gradients", "recipe.ema.decay", "recipe.keep_best.metric",
        "recipe.early_stopping.patience", "recipe.initial_weights", "recipe.lora.rank"}) {
    EXPECT_TRUE(names_field(spec.error(), field)) << field;
  }
}

TEST(ConvertSpec, AllProblemsAreReportedAtOnceByField) {
  const auto spec = to_engine(parse_spec(R"(
    recipe { epochs: 1 steps: 1 batch_size: 0 optimizer { type: ADAM momentum: 0.9 } schedule { gamma: 0.5 } }
    resources { threads: 0 } priority: 101)"));
  ASSERT_FALSE(spec.ok());
  for (const char* field :
       {"model", "recipe", "recipe.batch_size", "recipe.optimizer.learning_rate",
        "recipe.optimizer.momentum", "recipe.schedule.gamma", "resources.threads", "priority"}) {
    EXPECT_TRUE(names_field(spec.error(), field)) << field;
  }
}

TEST(ConvertSpec, ABatchSizeThatTheServerChoosesIsNotSet) {
  const auto refusal = [](const std::string& size) {
    const auto spec =
        to_engine(parse_spec("model { mlp {} } recipe { epochs: 1 batch_size: " + size +
                             " optimizer { learning_rate: 0.1 } }"));
    return spec.ok() ? "" : spec.error().message;
  };
  EXPECT_EQ(refusal("1"), "");
  EXPECT_NE(refusal("0").find("auto needs a server"), std::string::npos) << refusal("0");
  EXPECT_NE(refusal("-4").find("-4 is out of range, expected at least 1, or auto (0)"),
            std::string::npos)
      << refusal("-4");
}

TEST(ConvertSpec, SeveralGpusShareABatchEvenly) {
  const auto problem = [](const std::string& resources, const std::string& recipe) {
    const auto spec = to_engine(parse_spec("model { lenet5 {} } recipe { epochs: 1 " + recipe +
                                           " optimizer { learning_rate: 0.1 } } resources { " +
                                           resources + " }"));
    if (spec.ok()) return std::string();
    EXPECT_EQ(spec.error().violations.size(), 1u) << spec.error().message;
    return spec.error().violations[0].field + ": " + spec.error().violations[0].description;
  };
  EXPECT_EQ(problem("gpus: 1", "batch_size: 7"), "");
  EXPECT_EQ(problem("gpus: 1 device: CPU", "batch_size: 7"), "");
  EXPECT_EQ(problem("gpus: 4 device: GPU", "batch_size: 64"), "");
  EXPECT_EQ(problem("gpus: 64 device: GPU", "batch_size: 64"), "");
  EXPECT_EQ(problem("gpus: 4 device: GPU", "batch_size: 64 accumulate_steps: 4"), "");
  EXPECT_EQ(problem("gpus: 0 device: GPU", "batch_size: 64"),
            "resources.gpus: 0 is out of range, expected 1..64");
  EXPECT_EQ(problem("gpus: 65 device: GPU", "batch_size: 65"),
            "resources.gpus: 65 is out of range, expected 1..64");
  for (const char* device : {"", "device: AUTO", "device: CPU"}) {
    EXPECT_EQ(problem("gpus: 2 " + std::string(device), "batch_size: 64"),
              "resources.gpus: 2 needs device: gpu, expected that or gpus: 1");
  }
  EXPECT_EQ(problem("gpus: 4 device: GPU", "batch_size: 50"),
            "resources.gpus: 4 does not divide recipe.batch_size 50, expected one of 1, 2, 5, 10, "
            "25, 50");
  EXPECT_EQ(problem("gpus: 8 device: GPU", "batch_size: 64 accumulate_steps: 16"),
            "resources.gpus: 8 does not divide the 4 rows of recipe.batch_size over "
            "recipe.accumulate_steps, expected one of 1, 2, 4");
}

TEST(ConvertSpec, TwoArchitecturesAndEmptyLayersAreRefused) {
  EXPECT_FALSE(
      to_engine(parse_spec(std::string("model { lenet5 {} layers { relu {} } }") + kRecipe)).ok());
  const auto spec =
      to_engine(parse_spec(std::string("model { layers { name: \"x\" } }") + kRecipe));
  ASSERT_FALSE(spec.ok());
  EXPECT_TRUE(names_field(spec.error(), "model.layers[0]"));
}

TEST(ConvertSpec, AnOnnxFileIsReadByTheClient) {
  const auto refused =
      to_engine(parse_spec("model { onnx: \"/etc/net.onnx\" } " + std::string(kRecipe)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "FIELD_UNSUPPORTED");
  EXPECT_TRUE(names_field(refused.error(), "model.onnx")) << refused.error().message;
}

TEST(ConvertSpec, PrecisionIsReadAndWritten) {
  v1::JobSpec spec = parse_spec(std::string("model { lenet5 {} }") + kRecipe);
  EXPECT_EQ(to_engine(spec)->recipe.precision, Precision::kTf32) << "the default";
  for (const auto& [name, precision] : {std::pair{v1::Recipe::FP32, Precision::kFp32},
                                        std::pair{v1::Recipe::BF16, Precision::kBf16},
                                        std::pair{v1::Recipe::TF32, Precision::kTf32},
                                        std::pair{v1::Recipe::FP16, Precision::kFp16}}) {
    spec.mutable_recipe()->set_precision(name);
    EXPECT_EQ(to_engine(spec)->recipe.precision, precision);
    RunPlan plan;
    plan.precision = precision;
    EXPECT_EQ(to_proto(plan).precision(), name);
    EXPECT_EQ(to_proto(precision), name);
  }
}

TEST(ConvertSpec, UnknownEnumNumbersAreRefused) {
  v1::JobSpec spec = parse_spec(std::string("model { lenet5 {} }") + kRecipe);
  spec.mutable_recipe()->mutable_optimizer()->set_type(static_cast<v1::Optimizer::Type>(77));
  EXPECT_FALSE(to_engine(spec).ok());
  spec = parse_spec(std::string("model { lenet5 {} }") + kRecipe);
  spec.mutable_recipe()->set_precision(static_cast<v1::Recipe::Precision>(16));
  const auto refused = to_engine(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(names_field(refused.error(), "recipe.precision"));
  EXPECT_NE(refused.error().message.find("expected fp32, tf32, bf16 or fp16"), std::string::npos)
      << refused.error().message;
}

TEST(ConvertData, RolesBelongToFormats) {
  v1::DatasetSpec spec;
  spec.mutable_csv()->set_target("y");
  spec.add_sources()->set_role(v1::DatasetSource::TRAIN_IMAGES);
  const std::vector<std::filesystem::path> paths = {"/x"};
  EXPECT_FALSE(to_ingest_request(spec, paths).ok());
  spec.mutable_sources(0)->set_role(v1::DatasetSource::DATA);
  const auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->sources[0].role, "data");
  EXPECT_EQ(request->csv.target, "y");
}

TEST(ConvertData, ImageOptionsAreReadAndUnusedOnesRefused) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  spec.add_sources()->set_role(v1::DatasetSource::TEST);
  const std::vector<std::filesystem::path> paths = {"/x", "/y"};
  v1::ImagesFormat& images = *spec.mutable_images();
  images.add_size(32);
  images.add_size(24);
  images.set_resize(v1::ImagesFormat::PAD);
  images.set_channels(1);
  images.set_labels("labels.csv");
  images.set_damaged(v1::ImagesFormat::SKIP);
  auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "images");
  EXPECT_EQ(request->images.size, (std::vector<int64_t>{32, 24}));
  EXPECT_EQ(request->images.resize, "pad");
  EXPECT_EQ(request->images.channels, 1);
  EXPECT_EQ(request->images.labels, "labels.csv");
  EXPECT_EQ(request->images.damaged, "skip");
  EXPECT_EQ(request->sources[1].role, "test");

  images.clear_size();
  images.set_seed(3);
  images.set_channels(0);
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.images.resize"));
  EXPECT_TRUE(names_field(request.error(), "spec.images.seed"));
  EXPECT_TRUE(names_field(request.error(), "spec.images.channels"));
  images.set_resize(static_cast<v1::ImagesFormat::Resize>(9));
  images.set_damaged(static_cast<v1::ImagesFormat::Damaged>(9));
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.images.damaged"));
  EXPECT_TRUE(names_field(request.error(), "spec.images.resize"));

  spec.mutable_cifar();  // its test set is among its sources already
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.sources[1].role"));
  spec.mutable_sources()->RemoveLast();
  request = to_ingest_request(spec, std::span(paths).first(1));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "cifar");
}

// Fails if the API describes a format differently from the ingest, or if no spec file can name it.
TEST(ConvertData, TheWireDescribesTheFormatsOfTheIngest) {
  const auto roles = [](const auto& list) {
    std::vector<std::string> names;
    for (const int role : list)
      names.push_back(to_role(static_cast<v1::DatasetSource::Role>(role)));
    return names;
  };
  const auto* formats = v1::DatasetSpec::descriptor()->FindOneofByName("format");
  EXPECT_EQ(formats->field_count(), std::ssize(source_formats()));
  for (int i = 0; i < formats->field_count(); ++i) {
    const std::string& name = formats->field(i)->name();
    const auto found = find_format(name);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto& sources = formats->field(i)->options().GetExtension(v1::dataset_format).sources();
    ASSERT_EQ(sources.size(), std::ssize((*found)->sources)) << name;
    for (int s = 0; s < sources.size(); ++s) {
      const SourceSet& set = (*found)->sources[static_cast<size_t>(s)];
      EXPECT_EQ(roles(sources[s].train()), set.train) << name;
      EXPECT_EQ(roles(sources[s].test()), set.test) << name;
      EXPECT_EQ(roles(sources[s].others()), set.others) << name;
      if (!sources[s].named().empty()) {
        for (const auto& list : {set.train, set.test}) {
          for (const std::string& role : list) {
            EXPECT_NE(v1::DatasetFile::descriptor()->FindFieldByName(role), nullptr) << role;
          }
        }
        continue;
      }
      const auto* in_file = v1::DatasetFile::descriptor()->FindFieldByName(name);
      ASSERT_NE(in_file, nullptr) << name;
      EXPECT_EQ(in_file->message_type(), formats->field(i)->message_type()) << name;
    }
    // The format's options are read: an error may only concern the missing sources.
    v1::DatasetSpec spec;
    spec.GetReflection()->MutableMessage(&spec, formats->field(i));
    for (const int role : sources[0].train()) {
      spec.add_sources()->set_role(static_cast<v1::DatasetSource::Role>(role));
    }
    for (const int role : sources[0].others()) {
      spec.add_sources()->set_role(static_cast<v1::DatasetSource::Role>(role));
    }
    const std::vector<std::filesystem::path> paths(static_cast<size_t>(spec.sources_size()), "/a");
    const auto request = to_ingest_request(spec, paths);
    EXPECT_TRUE(request.ok() ||
                request.error().message.find(".target: is missing") != std::string::npos)
        << request.error().message;
  }
}

TEST(ConvertData, DocumentsNeedATokenizerAmongTheirSources) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  v1::DocumentsFormat& documents = *spec.mutable_documents();
  documents.set_template_("chatml");
  documents.set_loss(v1::DocumentsFormat::ALL);
  documents.set_end_token(false);
  documents.set_test_share(0.1);
  documents.set_seed(3);
  const auto without = to_ingest_request(spec, std::vector<std::filesystem::path>{"/a"});
  ASSERT_FALSE(without.ok());
  EXPECT_TRUE(without.error().message.starts_with("spec.sources: has no tokenizer"))
      << without.error().message;
  spec.add_sources()->set_role(v1::DatasetSource::TOKENIZER_JSON);
  const std::vector<std::filesystem::path> paths = {"/a", "/b"};
  const auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->documents.chat_template, "chatml");
  EXPECT_EQ(request->documents.loss, "all");
  EXPECT_FALSE(request->documents.end_token);
  EXPECT_EQ(request->documents.test_share, 0.1);
  EXPECT_EQ(request->documents.seed, 3u);
  EXPECT_EQ(request->sources[1].role, "tokenizer_json");
  documents.set_tokenizer("model");
  EXPECT_TRUE(to_ingest_request(spec, paths)
                  .error()
                  .message.starts_with("spec.documents.tokenizer: names files only in spec files"));
}

TEST(ConvertData, RowsOfTextCanHaveATokenizerAmongTheirSources) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  spec.add_sources()->set_role(v1::DatasetSource::TOKENIZER_JSON);
  v1::JsonlFormat& rows = *spec.mutable_jsonl();
  rows.set_target("label");
  const std::vector<std::filesystem::path> paths = {"/a", "/b"};
  const auto message = [&] {
    const auto request = to_ingest_request(spec, paths);
    return request.ok() ? "accepted" : request.error().message;
  };
  EXPECT_NE(message().find("set spec.jsonl.text"), std::string::npos) << message();
  rows.add_text("text");
  rows.set_max_length(64);
  const auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->csv.tokenizer, "pretrained");
  EXPECT_EQ(request->csv.max_length, 64);
  rows.set_tokenizer(v1::WORD);
  EXPECT_NE(message().find("spec.jsonl.tokenizer"), std::string::npos) << message();
  rows.clear_tokenizer();
  rows.set_tokenizer_of("model");
  EXPECT_NE(message().find("spec.jsonl.tokenizer_of"), std::string::npos) << message();
}

TEST(ConvertData, ArraysAreOneFileOrAFileForEach) {
  using Source = v1::DatasetSource;
  v1::DatasetSpec spec;
  const std::vector<std::filesystem::path> paths = {"/a", "/b", "/c"};
  v1::ArraysFormat& arrays = *spec.mutable_arrays();
  arrays.set_inputs("x");
  arrays.set_target_kind(v1::CsvFormat::NUMERIC);
  arrays.set_test_share(0.25);
  arrays.set_seed(9);
  spec.add_sources()->set_role(Source::DATA);
  auto request = to_ingest_request(spec, std::span(paths).first(1));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "arrays");
  EXPECT_EQ(request->arrays.inputs, "x");
  EXPECT_EQ(request->arrays.targets, "targets");
  EXPECT_EQ(request->arrays.target_kind, "numeric");
  EXPECT_EQ(request->arrays.test_share, 0.25);
  EXPECT_EQ(request->arrays.seed, 9u);

  spec.mutable_sources(0)->set_role(Source::INPUTS);
  spec.add_sources()->set_role(Source::TARGETS);
  request = to_ingest_request(spec, std::span(paths).first(2));
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.arrays.inputs"));  // NPY files have no names
  arrays.clear_inputs();
  arrays.clear_test_share();
  request = to_ingest_request(spec, std::span(paths).first(2));
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.arrays.seed"));
  arrays.clear_seed();
  request = to_ingest_request(spec, std::span(paths).first(2));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->sources[1].role, "targets");
  spec.add_sources()->set_role(Source::TEST_INPUTS);
  EXPECT_EQ(to_ingest_request(spec, paths).error().message,
            "spec.sources: has one of test_inputs and test_targets; expected both or neither");
  spec.mutable_sources(2)->set_role(Source::TEST);
  EXPECT_TRUE(names_field(to_ingest_request(spec, paths).error(), "spec.sources[0].role"));
}

TEST(ConvertData, JsonLinesAndTextFilesHaveTheOptionsOfCsv) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  const std::vector<std::filesystem::path> paths = {"/x"};
  v1::JsonlFormat& lines = *spec.mutable_jsonl();
  lines.set_max_length(7);
  auto request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.jsonl.target"));
  EXPECT_TRUE(names_field(request.error(), "spec.jsonl.max_length"));  // there are no text columns
  lines.set_target("y");
  lines.set_target_kind(v1::CsvFormat::NUMERIC);
  lines.add_categorical("a");
  lines.add_ignore("b");
  lines.add_date("c");
  lines.add_text("d");
  lines.set_tokenizer(v1::CHAR);
  request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "jsonl");
  const CsvOptions& o = request->csv;
  EXPECT_TRUE(o.json_lines);
  EXPECT_EQ(o.target + o.target_kind + o.categorical[0] + o.ignore[0] + o.date[0] + o.text[0] +
                o.tokenizer,
            "ynumericabcdchar");
  EXPECT_EQ(o.max_length, 7);
  EXPECT_FALSE(o.skips_rows());
  lines.set_missing_target(v1::CsvFormat::SKIP);
  EXPECT_TRUE(to_ingest_request(spec, paths)->csv.skips_rows());
  lines.set_missing_target(v1::CsvFormat::REFUSE);
  EXPECT_FALSE(to_ingest_request(spec, paths)->csv.skips_rows());
  lines.set_missing_target(static_cast<v1::CsvFormat::MissingTarget>(9));
  EXPECT_TRUE(names_field(to_ingest_request(spec, paths).error(), "spec.jsonl.missing_target"));

  v1::TextFilesFormat& files = *spec.mutable_text_files();
  files.set_vocabulary_size(50);
  files.set_test_share(0.5);
  files.set_seed(4);
  request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "text_files");
  EXPECT_EQ(request->text_files.vocabulary_size, 50);
  EXPECT_EQ(request->text_files.tokenizer, "word");
  EXPECT_EQ(request->text_files.seed, 4u);
  files.clear_test_share();
  files.set_tokenizer(v1::BYTE);
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.text_files.seed"));
  EXPECT_TRUE(names_field(request.error(), "spec.text_files.vocabulary_size"));

  spec.mutable_csv()->set_target("y");
  spec.mutable_csv()->add_date("when");
  EXPECT_EQ(to_ingest_request(spec, paths)->csv.date, (std::vector<std::string>{"when"}));
  spec.mutable_text()->set_field("body");
  EXPECT_EQ(to_ingest_request(spec, paths)->text.field, "body");
  EXPECT_TRUE(to_ingest_request(spec, paths)->text.end_token) << "each text of JSON lines ends";
  spec.mutable_text()->set_end_token(false);
  EXPECT_FALSE(to_ingest_request(spec, paths)->text.end_token);
  DatasetSchema schema;
  schema.columns = {{ColumnSchema::Kind::kNumeric, "when.days", {}, 0, "when"}};
  EXPECT_TRUE(to_proto(schema).columns(0).date());
  schema.skipped_rows = 3;
  schema.warnings = {{"KEY", {"a", "b"}, 2, "a sentence"}};
  const v1::DatasetSchema wire = to_proto(schema);
  EXPECT_EQ(wire.skipped_rows(), 3);
  ASSERT_EQ(wire.warnings_size(), 1);
  EXPECT_EQ(wire.warnings(0).key() + wire.warnings(0).columns(1) + wire.warnings(0).message(),
            "KEYba sentence");
  EXPECT_EQ(wire.warnings(0).count(), 2);
}

TEST(ConvertData, ResizeModeSurvivesTheWire) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = Shape{1, 2, 2};
  EXPECT_EQ(to_proto(schema).resize(), v1::ImagesFormat::RESIZE_UNSPECIFIED);
  schema.resize = ResizeMode::kCrop;
  schema.skipped_files = 7;
  EXPECT_EQ(to_proto(schema).resize(), v1::ImagesFormat::CROP);
  EXPECT_EQ(to_proto(schema).skipped_files(), 7);
}

TEST(ConvertData, TextOptionsAreReadAndUnusedOnesRefused) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  const std::vector<std::filesystem::path> paths = {"/x"};
  spec.mutable_text()->set_test_share(0.25);
  auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "text");
  EXPECT_EQ(request->text.tokenizer, "char");
  EXPECT_EQ(request->text.test_share, 0.25);
  spec.mutable_text()->set_vocabulary_size(400);  // a vocabulary of characters has a fixed size
  EXPECT_TRUE(names_field(to_ingest_request(spec, paths).error(), "spec.text.vocabulary_size"));
  spec.mutable_text()->set_tokenizer(v1::UNIGRAM);
  request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->text.tokenizer, "unigram");
  EXPECT_EQ(request->text.vocabulary_size, 400);
  spec.mutable_text()->clear_vocabulary_size();
  spec.mutable_text()->set_tokenizer(v1::WORD);
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.text.tokenizer"));

  v1::CsvFormat& csv = *spec.mutable_csv();
  csv.set_target("y");
  csv.set_tokenizer(v1::BYTE);
  csv.set_vocabulary_size(5);
  csv.set_max_length(7);
  request = to_ingest_request(spec, paths);  // there is no text column
  ASSERT_FALSE(request.ok());
  for (const char* field :
       {"spec.csv.tokenizer", "spec.csv.vocabulary_size", "spec.csv.max_length"}) {
    EXPECT_TRUE(names_field(request.error(), field)) << field;
  }
  csv.add_text("t");
  request = to_ingest_request(spec, paths);  // bytes have a fixed vocabulary
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.csv.vocabulary_size"));
  csv.clear_vocabulary_size();
  request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->csv.text, (std::vector<std::string>{"t"}));
  EXPECT_EQ(request->csv.tokenizer, "byte");
  EXPECT_EQ(request->csv.max_length, 7);
}

TEST(ConvertRun, ValuesThatAreNotFiniteAreMarked) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<MetricPoint> points = {
      {"train/loss", 1, 0.5}, {"train/loss", 2, std::nan("")}, {"val/mae", 2, -inf}};
  const v1::MetricBatch batch = to_proto(points);
  ASSERT_EQ(batch.series_size(), 2);
  EXPECT_EQ(batch.series(0).steps_size(), 2);
  EXPECT_EQ(batch.series(0).values(1), 0);
  ASSERT_EQ(batch.series(0).non_finite_size(), 1);
  EXPECT_EQ(batch.series(0).non_finite(0).index(), 1);
  EXPECT_EQ(batch.series(0).non_finite(0).kind(), v1::NonFinite::NOT_A_NUMBER);
  EXPECT_EQ(batch.series(1).non_finite(0).kind(), v1::NonFinite::NEGATIVE_INFINITY);
}

// Only the first classes of a dataset are listed, and only the most probable ones of a prediction
// are sent, since complete lists would not fit into a reply.
TEST(ConvertRun, OfVeryManyClassesTheFirstAndTheMostProbableAreSent) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kTabular;
  schema.statistics.emplace();
  for (int64_t k = 0; k < kClassesListedMax + 1; ++k) {
    schema.target.classes.push_back("c" + std::to_string(k));
    schema.statistics->classes.push_back(1);
  }
  const v1::DatasetSchema sent = to_proto(schema);
  EXPECT_EQ(sent.class_count(), kClassesListedMax + 1);
  EXPECT_EQ(sent.classes_size(), kClassesListedMax);
  EXPECT_EQ(sent.class_counts_size(), kClassesListedMax);
  Prediction p;
  p.label = 70;
  p.probabilities = {0.5F, 0.25F};
  p.top = {70, 9};
  const v1::PredictResponse answer =
      to_proto(std::span<const Prediction>(&p, 1), RawRows(), schema);
  EXPECT_EQ(answer.classes_size(), 0);
  EXPECT_EQ(answer.predictions(0).label(), "c70");
  EXPECT_EQ(answer.predictions(0).probabilities_size(), 2);
  EXPECT_EQ(answer.predictions(0).top_indices(1), 9);
  EXPECT_EQ(answer.predictions(0).top_labels(1), "c9");
}

TEST(ConvertRun, ConfusionMatricesStayShort) {
  const auto small = to_proto({{"val", {{5, 1}, {2, 7}}}}, {"a", "b"});
  ASSERT_EQ(small.size(), 1u);
  EXPECT_EQ(small[0].rows_of(), "val");
  EXPECT_EQ(small[0].classes(1), "b");
  EXPECT_EQ(small[0].rows(1).counts(0), 2);
  ASSERT_EQ(small[0].mistakes_size(), 2);
  EXPECT_EQ(small[0].mistakes(0).label(), "b");  // the most frequent mistake comes first
  EXPECT_EQ(small[0].mistakes(0).prediction(), "a");
  EXPECT_EQ(small[0].mistakes(0).count(), 2);
  std::vector<std::vector<int64_t>> counts(65, std::vector<int64_t>(65, 1));
  const auto large = to_proto({{"test", counts}}, std::vector<std::string>(65, "c"));
  EXPECT_EQ(large[0].rows_size(), 0);
  EXPECT_EQ(large[0].mistakes_size(), 20);
}

TEST(ConvertRun, InitialWeightsAreReportedWithTheirCounts) {
  RunPlan plan;
  EXPECT_FALSE(to_proto(plan).has_initial_weights());
  plan.initial_weights.emplace();
  plan.initial_weights->source = "digits-1";
  plan.initial_weights->taken.assign(70, "w");
  plan.initial_weights->missing = {"fc3.bias"};
  const v1::InitialWeightsReport report = to_proto(plan).initial_weights();
  EXPECT_EQ(report.source(), "digits-1");
  EXPECT_EQ(report.taken().count(), 70);
  EXPECT_EQ(report.taken().names_size(), 50);
  EXPECT_EQ(report.missing().names(0), "fc3.bias");
}

TEST(ConvertRun, ErrorsSurviveTheWire) {
  Error error = make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID",
                           "line 3: has 2 fields, expected 3");
  error.metadata["row"] = "3";
  const Error back = to_error(to_outcome(error));
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.reason, error.reason);
  EXPECT_EQ(back.message, error.message);
  EXPECT_EQ(back.metadata, error.metadata);
  v1::Outcome hostile;
  hostile.set_code(9999);
  EXPECT_EQ(to_error(hostile).code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace trainyard
