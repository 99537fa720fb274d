// Tests of documents in the whole engine: ingest, rows, training, evaluation. The tests catch a
// packed row whose documents see each other, a loss that is not the mean over the counted tokens of
// the whole batch, rows that planning counts wrongly, and a resumed run that gets other rows.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/load/packing.h"
#include "src/inference/evaluate_model.h"
#include "src/job/train_job.h"
#include "src/planning/job_plan.h"
#include "src/train/trainer.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::Workspace;

/// Ingests chats of different lengths by the golden tokenizer.
DatasetSchema ingest_chats(const Workspace& w, int64_t count) {
  const nlohmann::json golden =
      nlohmann::json::parse(std::ifstream(testing::source_path("tests/golden/documents.json")));
  IngestRequest request;
  request.format = "documents";
  request.documents.chat_template = "chatml";
  request.documents.test_share = 0.1;
  for (const auto& [role, name] : {std::pair("tokenizer_json", "tokenizer.json"),
                                   std::pair("tokenizer_config", "tokenizer_config.json")}) {
    std::ofstream(w / name) << golden["files"][name].get<std::string>();
    request.sources.push_back({role, w / name});
  }
  std::ofstream rows(w / "rows.jsonl");
  for (int64_t i = 0; i < count; ++i) {
    const std::string question = "What is " + std::to_string(i) + std::string(i * 7 % 13, '?');
    const nlohmann::json line = {
        {"messages",
         {{{"role", "user"}, {"content", question}},
          {{"role", "assistant"}, {"content", "The " + std::string(i * 5 % 11, 'a')}}}}};
    rows << line.dump() << "\n";
  }
  rows.close();
  request.sources.push_back({"data", w / "rows.jsonl"});
  auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.ok() ? *std::move(schema) : DatasetSchema{};
}

TrainJob chat_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model.preset = "gpt2";
  job.model.parameters = {{"n_layer", int64_t{2}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{16}}};
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.seed = 3;
  job.recipe.context_length = 96;
  job.recipe.batch_size = 4;
  job.recipe.steps = 12;
  job.recipe.checkpoint_every_steps = 4;
  job.recipe.validation_split = 0.2;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

double value_of_metric(const TrainResult& result, const std::string& key) {
  for (const MetricPoint& m : result.final_metrics) {
    if (m.key == key) return m.value;
  }
  ADD_FAILURE() << key << " is missing";
  return std::nan("");
}

TrainResult train_ok(const TrainJob& job, Recorder& recorder) {
  const auto backend = testing::make_tested_backend(1);
  auto result = train(job, *backend, local_files(), recorder, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : TrainResult{};
}

TEST(DocumentTraining, PackedDocumentsHaveTheLossThatTheyHaveAlone) {
  const Workspace w;
  ingest_chats(w, 60);
  Recorder learning, packed, alone;
  TrainJob job = chat_job(w, "learned");
  job.recipe.steps = 60;
  (void)train_ok(job, learning);
  const auto evaluated = [&](const std::string& name, bool packs, Recorder& recorder) {
    job = chat_job(w, name);
    job.recipe.initial_weights.source = "learned";
    job.initial_weights = w / "learned-model/model.safetensors";
    job.recipe.steps = 1;
    job.recipe.optimizer.learning_rate = 1e-12;  // so that both evaluate nearly the same weights
    job.recipe.packing = packs;
    return train_ok(job, recorder);
  };
  const TrainResult a = evaluated("packed", true, packed);
  const TrainResult b = evaluated("alone", false, alone);
  EXPECT_LT(2 * packed.plan.validation_rows, alone.plan.validation_rows);
  EXPECT_EQ(alone.plan.train_rows + alone.plan.validation_rows, 54);
  EXPECT_EQ(alone.plan.test_rows, 6);
  for (const std::string key : {"val/loss", "val/perplexity", "test/loss"}) {
    EXPECT_NEAR(value_of_metric(a, key) / value_of_metric(b, key), 1, 1e-5) << key;
  }
  EXPECT_EQ(value_of_metric(a, "val/accuracy"), value_of_metric(b, "val/accuracy"));
  // The model has learned enough for what it sees to matter.
  EXPECT_LT(value_of_metric(a, "val/loss"), 0.5 * std::log(330));
}

TEST(DocumentTraining, MicroBatchesHaveTheMeanOverAllCountedTokens) {
  const Workspace w;
  ingest_chats(w, 60);
  Recorder whole, parts;
  TrainJob job = chat_job(w, "whole");
  const TrainResult a = train_ok(job, whole);
  job = chat_job(w, "parts");
  job.recipe.accumulate_steps = 4;
  const TrainResult b = train_ok(job, parts);
  const auto& of_whole = whole.series["train/loss"];
  const auto& of_parts = parts.series["train/loss"];
  ASSERT_EQ(of_whole.size(), 12u);
  for (const auto& [step, loss] : of_whole) {
    EXPECT_NEAR(of_parts.at(step) / loss, 1, 1e-4) << "step " << step;
  }
  EXPECT_LT(of_whole.rbegin()->second, of_whole.begin()->second - 0.5);
  EXPECT_NEAR(value_of_metric(a, "val/loss") / value_of_metric(b, "val/loss"), 1, 1e-3);
}

TEST(DocumentTraining, RanksHaveTheMeanOverAllCountedTokens) {
  const Workspace w;
  ingest_chats(w, 60);
  Recorder one, two;
  (void)testing::run(chat_job(w, "one"), 1, one);
  (void)testing::run(chat_job(w, "two"), 2, two);
  for (const auto& [step, loss] : one.series["train/loss"]) {
    EXPECT_NEAR(two.series["train/loss"].at(step) / loss, 1, 1e-4) << "step " << step;
  }
}

TEST(DocumentTraining, AResumedRunHasTheSameBits) {
  const Workspace w;
  ingest_chats(w, 60);
  Recorder whole;
  (void)train_ok(chat_job(w, "whole"), whole);
  const TrainJob cut = chat_job(w, "cut");
  Recorder recorder;
  std::stop_source stop;
  recorder.stop_step = 5;
  recorder.stop = &stop;
  const auto backend = testing::make_tested_backend(1);
  EXPECT_EQ(train(cut, *backend, local_files(), recorder, stop.get_token()).error().reason,
            "STOPPED");
  Recorder rest;
  (void)train_ok(cut, rest);
  EXPECT_EQ(bytes_of(w / "whole-model/model.safetensors"),
            bytes_of(w / "cut-model/model.safetensors"));
}

TEST(DocumentTraining, AModelIsEvaluatedOnDocuments) {
  const Workspace w;
  ingest_chats(w, 60);
  Recorder recorder;
  const TrainResult result = train_ok(chat_job(w, "a"), recorder);
  const auto backend = testing::make_tested_backend(1);
  const auto evaluation = evaluate_model(w / "a-model", w / "dataset", "test", {}, *backend);
  ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
  for (const auto& [name, value] : evaluation->values) {
    EXPECT_NEAR(value / value_of_metric(result, "test/" + name), 1, 1e-5) << name;
  }
}

TEST(DocumentTraining, WhatIsCutIsToldBeforeTheRun) {
  const Workspace w;
  const DatasetSchema schema = ingest_chats(w, 60);
  TrainJob job = chat_job(w, "cut");
  job.recipe.context_length = 24;
  job.recipe.steps = 1;
  Recorder recorder;
  const TrainResult result = train_ok(job, recorder);
  EXPECT_NE(recorder.line_with("documents are cut before their first answer"), "");
  bool told = false;
  for (const std::string& warning : recorder.plan.warnings) {
    told = told || warning.find("documents are longer than recipe.context_length 24 and are cut") !=
                       std::string::npos;
  }
  EXPECT_TRUE(told);
  (void)result;
}

TEST(DocumentTraining, RefusesWhatHasNoMeaning) {
  const Workspace w;
  const DatasetSchema schema = ingest_chats(w, 30);
  const auto message = [&](const auto& change) {
    TrainJob job = chat_job(w, "refused");
    change(job);
    const auto plan = plan_run(job.model, job.recipe, schema);
    return plan.ok() ? std::string("accepted") : plan.error().message;
  };
  EXPECT_EQ(message([](TrainJob&) {}), "accepted");
  const std::string one = message([](TrainJob& job) { job.recipe.context_length = 1; });
  EXPECT_TRUE(one.starts_with("recipe.context_length: 1 token")) << one;
  const std::string ignored = message([](TrainJob& job) {
    job.model.loss = {"SoftmaxCrossEntropyLoss", {{"ignore_index", int64_t{2}}}};
  });
  EXPECT_TRUE(ignored.starts_with("model.loss.softmax_cross_entropy.ignore_index: ")) << ignored;
  const auto recurrent = [](TrainJob& job) {
    job.model = {};
    job.model.layers = {{"", "Embedding", {}, {{"embedding_dim", int64_t{8}}}},
                        {"", "LSTM", {}, {{"hidden_size", int64_t{8}}}},
                        {"", "Linear", {}, {}}};
  };
  const std::string mixes = message(recurrent);
  EXPECT_TRUE(mixes.starts_with("recipe.packing: the model's layer 'lstm1'")) << mixes;
  EXPECT_EQ(message([&](TrainJob& job) {
              recurrent(job);
              job.recipe.packing = false;
            }),
            "accepted");
  DatasetSchema table;
  table.columns = {{ColumnSchema::Kind::kNumeric, "x", {}, 0}};
  table.target.classes = {"a", "b"};
  table.train_rows = 50;
  ModelSpec mlp;
  mlp.preset = "mlp";
  Recipe recipe;
  recipe.steps = 1;
  recipe.batch_size = 8;
  recipe.optimizer.learning_rate = 0.1;
  recipe.packing = false;
  EXPECT_TRUE(plan_run(mlp, recipe, table)
                  .error()
                  .message.starts_with("recipe.packing: has no effect here"));
}

}  // namespace
}  // namespace trainyard
