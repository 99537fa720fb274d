// Tests of text in the whole engine: ingest, loader, training, evaluation, prediction, and
// refusals. The tests catch windows that are counted wrongly, a loss that is not the mean over
// tokens, a resumed run that gets other windows, and raw text that is tokenized differently from
// the training rows.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "src/data/load/windows.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/train_job.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/train/trainer.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::Workspace;

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

DatasetSchema ingest_text(const Workspace& w, const std::string& text, double test_share) {
  write(w / "input.txt", text);
  IngestRequest request;
  request.format = "text";
  request.text.test_share = test_share;
  request.sources.push_back({"data", w / "input.txt"});
  auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.ok() ? *std::move(schema) : DatasetSchema{};
}

// Ingests rows of two topics, which differ only in their words.
DatasetSchema ingest_news(const Workspace& w, int64_t rows) {
  std::string csv = "topic,headline\n";
  for (int64_t i = 0; i < rows; ++i) {
    const std::string filler = "word" + std::to_string(i % 17);
    csv += i % 2 == 0 ? "sport," + filler + " team wins match\n"
                      : "money," + filler + " bank cuts rates\n";
  }
  write(w / "news.csv", csv);
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "topic";
  request.csv.text = {"headline"};
  request.csv.max_length = 6;
  request.sources.push_back({"data", w / "news.csv"});
  auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.ok() ? *std::move(schema) : DatasetSchema{};
}

// With a context of one token, the bag is that token's vector, so the model learns bigrams.
ModelSpec bigram_model(int64_t vocabulary) {
  ModelSpec spec;
  spec.layers = {{"", "EmbeddingBag", {}, {{"embedding_dim", int64_t{16}}}},
                 {"", "Gemm", {}, {{"units", vocabulary}}},
                 {"", "Reshape", {}, {{"shape", std::vector<int64_t>{1, vocabulary}}}}};
  return spec;
}

ModelSpec preset(std::string name) {
  ModelSpec spec;
  spec.preset = std::move(name);
  return spec;
}

std::string periodic_text(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += static_cast<char>('a' + i % 7);
  return text;
}

TrainJob text_job_in(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.05;
  job.recipe.seed = 3;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

TrainJob bigram_job(const Workspace& w, const std::string& name) {
  TrainJob job = text_job_in(w, name);
  job.model = bigram_model(8);
  job.recipe.context_length = 1;
  job.recipe.batch_size = 32;
  job.recipe.steps = 60;
  job.recipe.checkpoint_every_steps = 20;
  job.recipe.validation_split = 0.2;
  return job;
}

TEST(TextTraining, LearnsASequence) {
  const Workspace w;
  ingest_text(w, periodic_text(700), 0.1);
  const auto backend = testing::make_tested_backend(1);
  Recorder recorder;
  const auto result = train(bigram_job(w, "a"), *backend, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(recorder.plan.train_rows, 502);  // 630 tokens minus 126 for validation, overlapping
  EXPECT_EQ(recorder.plan.validation_rows, 126);
  EXPECT_EQ(recorder.plan.test_rows, 69);
  EXPECT_GT(recorder.signs, 60 + 126 / 16) << "of each step and each batch that is evaluated";
  const auto final_value = [&](const std::string& key) {
    for (const MetricPoint& m : result->final_metrics) {
      if (m.key == key) return m.value;
    }
    ADD_FAILURE() << key << " is missing";
    return std::nan("");
  };
  EXPECT_LT(final_value("train/loss"), 0.1);
  EXPECT_LT(final_value("val/loss"), 0.1);
  EXPECT_EQ(final_value("val/accuracy"), 1);
  EXPECT_EQ(final_value("test/accuracy"), 1);
  EXPECT_EQ(recorder.series.count("train/accuracy"), 0u);  // training does not read scores back
  EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
  const auto predictor = Predictor::open(w / "a-model", *backend);
  ASSERT_FALSE(predictor.ok());
  EXPECT_EQ(predictor.error().reason, "PREDICT_UNSUPPORTED");
}

TEST(TextTraining, ResumedRunSeesTheSameWindows) {
  const Workspace w;
  ingest_text(w, periodic_text(300) + "abcabcbbaa", 0);
  const auto backend = testing::make_tested_backend(1);
  Recorder whole;
  ASSERT_TRUE(train(bigram_job(w, "whole"), *backend, local_files(), whole, {}).ok());
  TrainJob cut = bigram_job(w, "cut");
  Recorder recorder;
  std::stop_source stop;
  recorder.stop_step = 20;
  recorder.stop = &stop;
  EXPECT_EQ(train(cut, *backend, local_files(), recorder, stop.get_token()).error().reason,
            "STOPPED");
  ASSERT_TRUE(train(cut, *backend, local_files(), recorder, {}).ok());
  EXPECT_EQ(bytes_of(w / "whole-model/model.safetensors"),
            bytes_of(w / "cut-model/model.safetensors"));
}

TEST(TextTraining, RowsAreClassifiedAndRawTextIsReadAlike) {
  const Workspace w;
  ingest_news(w, 96);
  const auto backend = testing::make_tested_backend(2);
  TrainJob job = text_job_in(w, "news");
  job.model = preset("embedding_bag_classifier");
  job.recipe.epochs = 10;
  job.recipe.batch_size = 16;
  job.recipe.validation_split = 0.25;
  Recorder recorder;
  const auto result = train(job, *backend, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(recorder.series["val/accuracy"].rbegin()->second, 1);
  const auto predictor = Predictor::open(job.model_output, *backend);
  ASSERT_TRUE(predictor.ok()) << predictor.error().message;
  const auto rows = parse_raw_rows((*predictor)->schema(), "text",
                                   "The TEAM wins a match!\nunheard of: the bank cuts rates\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const auto predictions = (*predictor)->predict(*rows);
  const auto& classes = (*predictor)->schema().target.classes;
  EXPECT_EQ(classes[static_cast<size_t>(predictions[0].label)], "sport");
  EXPECT_EQ(classes[static_cast<size_t>(predictions[1].label)], "money");
}

TEST(TextTraining, RefusesMismatches) {
  const Workspace stream_folder;
  const Workspace rows_folder;
  const DatasetSchema stream = ingest_text(stream_folder, periodic_text(100), 0);
  const DatasetSchema rows = ingest_news(rows_folder, 32);
  DatasetSchema table;
  table.columns = {{ColumnSchema::Kind::kNumeric, "x", {}, 0}};
  table.target.classes = {"a", "b"};
  table.train_rows = 50;
  Recipe recipe;
  recipe.steps = 5;
  recipe.batch_size = 8;
  recipe.optimizer.learning_rate = 0.1;
  const auto message = [&](const ModelSpec& model, const DatasetSchema& schema,
                           int64_t context_length) {
    Recipe r = recipe;
    r.context_length = context_length;
    const auto plan = plan_run(model, r, schema);
    return plan.ok() ? std::string("accepted") : plan.error().message;
  };
  const ModelSpec bag = preset("embedding_bag_classifier");
  EXPECT_EQ(message(bigram_model(8), stream, 1), "accepted");
  EXPECT_EQ(message(bag, rows, 0), "accepted");
  ModelSpec wide = preset("text_cnn");
  wide.parameters.set("widths", std::vector<int64_t>{3, 7});
  const struct {
    std::string text, start;
  } cases[] = {
      {message(bigram_model(8), stream, 100),
       "recipe.context_length: 100 tokens and the one after them do not fit in the training text "
       "of 100 tokens, expected 1..99"},
      {message(bigram_model(8), stream, 0), "recipe.context_length: 256 tokens"},
      {message(bigram_model(8), stream, 65537),
       "recipe.context_length: 65537 is out of range, expected 1..65536"},
      {message(bigram_model(8), stream, 20),
       "recipe.batch_size: 8 is larger than the 4 training windows"},
      {message(bag, rows, 12),
       "recipe.context_length: has no effect here: the rows of this "
       "dataset have 6 tokens each"},
      {message(preset("mlp"), table, 12),
       "recipe.context_length: has no effect here: only text has a context"},
      {message(bag, table, 0),
       "model.embedding_bag_classifier: reads rows of text, but the "
       "dataset has none"},
      {message(bag, stream, 4),
       "model.embedding_bag_classifier: reads rows of text, but the "
       "dataset is one text"},
      {message(preset("text_cnn"), table, 0), "model.text_cnn: reads rows of text"},
      {message(preset("lstm_classifier"), stream, 4), "model.lstm_classifier: reads rows of text"},
      {message(wide, rows, 0),
       "model.text_cnn: takes rows of 7 tokens (its widest filter) or "
       "more, but the dataset's have 6"},
      {message(preset("lenet5"), rows, 0), "model.lenet5: needs images"},
      {message(preset("mlp"), rows, 0), "model.mlp 'fc1': x: "},
      {message(bigram_model(7), stream, 1),
       "model.layers[2] 'reshape1': its output is [8, 1, 7], but the dataset needs [N, 1, 8]"},
  };
  for (const auto& c : cases) EXPECT_TRUE(c.text.starts_with(c.start)) << c.text;
  ModelSpec recurrent;
  recurrent.layers = {{"", "LSTM", {}, {{"hidden_size", int64_t{4}}}}, {"", "Gemm", {}, {}}};
  EXPECT_EQ(message(recurrent, rows, 0),
            "model.layers[0] 'lstm1': needs sequences [N, T, F], but its input is [8, 6]; put an "
            "embedding layer before it");
  recurrent.layers[0].attributes.set("direction", std::string("sideways"));
  EXPECT_TRUE(message(recurrent, rows, 0).starts_with("model.layers[0] 'lstm1': direction: "))
      << message(recurrent, rows, 0);
}

}  // namespace
}  // namespace trainyard
