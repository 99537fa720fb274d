// Tests of categorical columns as embeddings, from the spec to predictions: which layers a preset
// expands to, what is refused, that a model with category codes is never given one-hot rows or the
// reverse, and that interrupted and resumed training gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/artifact/model_artifact.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/models/layer.h"
#include "src/models/loss.h"
#include "src/models/model_json.h"
#include "src/models/preset.h"
#include "src/planning/programs.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::Workspace;

// Returns two numeric columns, then "color" with 3 and "Größe" with 300 categories.
ModelInterface table() {
  ModelInterface interface { {2 + 3 + 300}, 0, TargetForm::kClass, 2 };
  interface.categories = {{"colour", 3},
                          {"Gr\xc3\xb6\xc3\x9f"
                           "e",
                           300}};
  return interface;
}

ModelSpec embedded(Attribute embedding) {
  ModelSpec spec;
  spec.preset = "mlp";
  spec.parameters.set("hidden", int64_t{8});
  spec.parameters.set("embedding", std::move(embedding));
  return spec;
}

Shape shape_of(const Model& model, const std::string& name) {
  const auto id = model.graph.find_tensor(name);
  EXPECT_TRUE(id.has_value()) << name << "\n" << model.graph.dump();
  return id ? model.graph.tensor(*id).type.shape : Shape{};
}

TEST(CategoryEmbedding, WidthsFollowFastai) {
  // The numbers are the results of fastai's emb_sz_rule for the categories and "#na#".
  EXPECT_EQ(category_embedding_dim(1), 2);
  EXPECT_EQ(category_embedding_dim(5), 4);
  EXPECT_EQ(category_embedding_dim(9), 6);
  EXPECT_EQ(category_embedding_dim(99), 21);
  EXPECT_EQ(category_embedding_dim(9999), 278);
  EXPECT_EQ(category_embedding_dim(1000000), 600);
}

TEST(CategoryEmbedding, EachColumnHasATableOfItsOwn) {
  const Model by_rule = build_model(embedded("auto"), table(), {.batch_size = 5}).value();
  EXPECT_EQ(shape_of(by_rule, "input"), (Shape{5, 4}));
  EXPECT_EQ(shape_of(by_rule, "embedding_colour.weight"), (Shape{4, 3}));
  EXPECT_EQ(shape_of(by_rule, "embedding_gr____e.weight"), (Shape{301, 39}));
  EXPECT_EQ(shape_of(by_rule, "fc1.weight"), (Shape{8, 2 + 3 + 39}));
  const Model one = build_model(embedded(int64_t{7}), table(), {}).value();
  EXPECT_EQ(shape_of(one, "fc1.weight"), (Shape{8, 2 + 7 + 7}));
  const Model named = build_model(embedded(NamedInts{{"colour", 1}}), table(), {}).value();
  EXPECT_EQ(shape_of(named, "fc1.weight"), (Shape{8, 2 + 1 + 39}));
  const Initializer start =
      by_rule.graph.tensor(*by_rule.graph.find_tensor("embedding_colour.weight")).initializer;
  EXPECT_EQ(start.kind, Initializer::Kind::kNormal);
  EXPECT_DOUBLE_EQ(start.b, 0.01);
}

// A user can write out the preset's layers and change them; a table may consist of categories only.
TEST(CategoryEmbedding, PresetEqualsItsWrittenOutLayers) {
  for (const bool numbers : {true, false}) {
    ModelInterface interface = table();
    if (!numbers) interface.input = Shape{3 + 300};
    const ModelSpec spec = embedded("auto");
    ModelSpec by_hand;
    by_hand.layers = expand_preset(spec, interface.with_category_codes()).value();
    const Model a = build_model(spec, interface, {.batch_size = 3}).value();
    const Model b = build_model(by_hand, interface, {.batch_size = 3}).value();
    EXPECT_EQ(a.graph.dump(), b.graph.dump());
  }
}

TEST(CategoryEmbedding, WithoutItModelsAreUnchanged) {
  ModelSpec spec = embedded("auto");
  spec.parameters = {{"hidden", int64_t{8}}};
  ModelInterface plain = table();
  plain.categories.clear();
  EXPECT_EQ(build_model(spec, table(), {}).value().graph.dump(),
            build_model(spec, plain, {}).value().graph.dump());
}

// bf16 would round an index above 256.
TEST(CategoryEmbedding, Bf16KeepsIndicesWhole) {
  Recipe recipe;
  recipe.precision = Precision::kBf16;
  const RunPrograms programs = compile_step(embedded("auto"), recipe, table()).value();
  const Graph& graph = programs.train.program.graph;
  int casts = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->type() != "Cast" || node.attributes.get_string("to", "") != "I32") continue;
    ++casts;
    for (TensorId id = node.inputs[0]; id != kNoTensor;) {  // back to the input
      EXPECT_FALSE(graph.tensor(id).is_bf16()) << graph.tensor(id).name;
      const NodeId producer = graph.tensor(id).producer;
      id = producer == kNoNode ? kNoTensor : graph.node(producer).inputs[0];
    }
  }
  EXPECT_EQ(casts, 2);
}

TEST(CategoryEmbedding, RefusesWhatItCannotUse) {
  ModelInterface numbers = table();
  numbers.categories.clear();
  ModelSpec reconstruction = embedded("auto");
  reconstruction.target = "input";
  ModelSpec layer, unknown;
  layer.layers = {{"", "CategoryEmbedding", {}, {{"column", "colour"}}}, {"", "Gemm", {}, {}}};
  unknown.layers = {{"", "CategoryEmbedding", {}, {{"column", "color"}}}, {"", "Gemm", {}, {}}};
  ModelSpec behind = layer;
  behind.layers.insert(behind.layers.begin(), {"", "Relu", {}, {}});
  const std::string field = "model.mlp.embedding";
  struct Case {
    ModelSpec spec;
    ModelInterface data;
    std::string field, words;
  };
  const std::vector<Case> cases = {
      {embedded("auto"), numbers, field, "the dataset has no categorical columns"},
      {embedded("atuo"), table(), field, "'atuo' is not known, expected auto or a whole number"},
      {embedded(int64_t{0}), table(), field, "0 is out of range, expected 1..65536"},
      {embedded(2.5), table(), field, "expected auto or a whole number or whole numbers by name"},
      {embedded(NamedNumbers{{"colour", 2.5}}), table(), field,
       "expected auto or a whole number or whole numbers by name"},
      {embedded(NamedInts{{"colour", 0}}), table(), field + ".colour", "0 is out of range"},
      {embedded(NamedInts{{"color", 4}}), table(), field + ".color", "did you mean 'colour'?"},
      {embedded(NamedInts{{"x0", 4}}), table(), field + ".x0", "is not a categorical column"},
      {reconstruction, table(), field, "does not work with the input as target"},
      {layer, numbers, "model.layers[0].category_embedding", "no categorical columns"},
      {unknown, table(), "model.layers[0].category_embedding.column", "did you mean 'colour'?"},
      {behind, table(), "model.layers[1]", "expected inputs: [input]"}};
  for (const Case& c : cases) {
    const auto model = build_model(c.spec, c.data, {});
    ASSERT_FALSE(model.ok()) << c.words;
    ASSERT_EQ(model.error().violations.size(), 1u) << model.error().message;
    EXPECT_EQ(model.error().violations[0].field, c.field);
    EXPECT_NE(model.error().message.find(c.words), std::string::npos) << model.error().message;
  }
}

TEST(CategoryEmbedding, SurvivesTheModelFile) {
  for (const Attribute& embedding :
       {Attribute("auto"), Attribute(int64_t{7}), Attribute(NamedInts{{"a \"b\"", 3}})}) {
    const ModelSpec spec = embedded(embedding);
    EXPECT_EQ(model_from_json(model_to_json(spec)).value().parameters, spec.parameters);
  }
}

/// Makes a dataset whose class is the parity of the shop's number. A linear model with the number
/// itself as an input could not learn it. Some shops are missing, and the test rows contain one
/// that training never saw.
void make_shops(const Workspace& w) {
  const auto write = [&](const std::filesystem::path& path, int first, int count) {
    std::ofstream out(path);
    out << "amount,shop,day,y\n";
    for (int i = first; i < first + count; ++i) {
      const int shop = i * 7 % 11;
      const std::string name = i % 40 == 39 ? "" : "shop" + std::to_string(shop);
      out << std::sin(i) << ',' << name << ',' << (i % 3 == 0 ? "mon" : "tue") << ','
          << (shop % 2 == 0 ? "even" : "odd") << '\n';
    }
  };
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  write(w / "rows.csv", 0, 440);
  write(w / "test.csv", 440, 110);
  request.sources = {{"data", w / "rows.csv"}, {"test", w / "test.csv"}};
  const auto made = ingest(request, w / "dataset", local_files());
  ASSERT_TRUE(made.ok()) << made.error().message;
}

TrainJob categories_job_in(const Workspace& w, const std::string& model) {
  TrainJob job;
  job.model = embedded("auto");
  job.recipe.epochs = 30;
  job.recipe.batch_size = 20;
  job.recipe.optimizer = default_optimizer("adam");
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.validation_split = 0.1;
  job.dataset = w / "dataset";
  job.checkpoints = w / (model + "-checkpoints");
  job.model_output = w / model;
  return job;
}

TEST(CategoryEmbedding, TrainsPredictsAndTakesUnseenCategories) {
  const Workspace w;
  make_shops(w);
  const auto backend = testing::make_tested_backend(1);
  Recorder recorder;
  const TrainJob job = categories_job_in(w, "model");
  const auto result = train(job, *backend, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  for (const MetricPoint& m : result->final_metrics) {
    // Half of the rows without a shop are classified correctly.
    if (m.key == "test/accuracy") {
      EXPECT_GT(m.value, 0.95);
    }
  }
  const auto predictor = Predictor::open(w / "model", *backend).value();
  const auto predict = [&](const std::string& shop) {
    const auto rows =
        parse_raw_rows(predictor->schema(), "csv", "amount,shop,day\n0.1," + shop + ",tue\n");
    return predictor->predict(rows.value()).at(0).probabilities;
  };
  EXPECT_GT(predict("shop4")[0], 0.9f);
  EXPECT_GT(predict("shop5")[1], 0.9f);
  EXPECT_EQ(predict("shop99"), predict("")) << "unseen is missing";

  // A choice of category codes is stored in two places; a model file in which they disagree is
  // refused.
  const std::string text = bytes_of(w / "model" / "model.json");
  auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["preprocessing"]["category_codes"], true);
  json["preprocessing"].erase("category_codes");
  std::ofstream(w / "model" / "model.json") << json.dump();
  const auto mixed = read_model(w / "model");
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().reason, "MODEL_FILE_INVALID");
}

TEST(CategoryEmbedding, StoppedAndResumedEndsWithTheSameBits) {
  const Workspace w;
  make_shops(w);
  const auto backend = testing::make_tested_backend(1);
  Recorder recorder;
  ASSERT_TRUE(train(categories_job_in(w, "whole"), *backend, local_files(), recorder, {}).ok());
  TrainJob parts = categories_job_in(w, "parts");
  parts.recipe.checkpoint_every_steps = 2;
  std::stop_source stop;
  recorder.on_checkpoint = [&](int64_t) { stop.request_stop(); };
  const auto stopped = train(parts, *backend, local_files(), recorder, stop.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().reason, "STOPPED");
  Recorder second;
  ASSERT_TRUE(train(parts, *backend, local_files(), second, {}).ok());
  EXPECT_GT(second.plan.first_step, 0);
  EXPECT_EQ(bytes_of(w / "whole" / "model.safetensors"),
            bytes_of(w / "parts" / "model.safetensors"));
}

}  // namespace
}  // namespace trainyard
