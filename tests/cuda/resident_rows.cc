#include "tests/cuda/resident_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "src/job/train_job.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"
#include "src/train/evaluate.h"
#include "src/train/loop.h"
#include "src/train/session.h"

namespace trainyard::testing {
namespace {

DatasetSchema ingest_file(const Workspace& w, const std::string& text, IngestRequest request) {
  std::ofstream(w / "input") << text;
  request.sources.push_back({"data", w / "input"});
  auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.ok() ? *std::move(schema) : DatasetSchema{};
}

/// Pseudo-random numbers from 0 to 255.
int noise(int64_t i) { return static_cast<int>(static_cast<uint64_t>(i) * 2654435761u >> 9 & 255); }

AugmentationSpec with(std::string kind, Attributes attributes = {}) {
  return {std::move(kind), std::move(attributes)};
}

ModelSpec spec_of(std::vector<LayerSpec> layers) {
  ModelSpec spec;
  spec.layers = std::move(layers);
  return spec;
}

/// Compares batches of several epochs gathered by the GPU with those of the host, bit by bit.
void expect_same_batches(Backend& backend, const Workspace& w, const DatasetSchema& schema,
                         const TrainJob& job) {
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const auto shape = check_recipe(job.recipe, job.model, schema, 1, backend.traits());
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  ASSERT_TRUE(shape->resident.has_value());
  const Split split = split_dataset(schema, shape->context_length, 0.2, 5);
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train,
                                            preprocessing_options(job.recipe, *shape));
  const auto options = [&](bool samples) {
    const auto kind = samples ? BatchSource::Kind::kResident : BatchSource::Kind::kHost;
    return BatchSource({job.recipe, *shape, data, p, split}, kind).options(0);
  };
  Loader host(schema, p, data.train(), split.train, options(false));
  Loader records(schema, p, data.train(), split.train, options(true));
  const Augmenter augmenter = make_augmenter(job.recipe.augmentation, schema, p);
  ResidentDataset resident(backend, {*shape->resident,
                                     RowTransform(schema, p),
                                     data.train(),
                                     {augmenter.mean().begin(), augmenter.mean().end()}});
  for (int64_t step = 0; step < 2 * host.steps_per_epoch() + 1; ++step) {
    const Batch& expected = host.next();
    const Batch& asked = records.next();
    if (!schema.stream()) {
      EXPECT_EQ(asked.target_class, expected.target_class);
    }
    EXPECT_TRUE(asked.input.empty() && asked.tokens.empty());
    const auto inputs = expected.input_bytes(), targets = expected.target_bytes();
    std::vector<std::byte> input(inputs.size()), target(targets.size());
    auto* const x = static_cast<std::byte*>(backend.allocate(std::ssize(input)));
    auto* const y = static_cast<std::byte*>(backend.allocate(std::ssize(target)));
    const auto bytes = std::as_bytes(std::span(asked.samples));
    const DeviceBuffer samples(backend, std::ssize(bytes));
    backend.copy_to_device(samples.get(), bytes.data(), std::ssize(bytes));
    resident.gather(reinterpret_cast<const kernels::ResidentSample*>(samples.get()),
                    std::ssize(asked.samples), x, y, {});
    backend.synchronize();
    backend.copy_to_host(input.data(), x, std::ssize(input));
    backend.copy_to_host(target.data(), y, std::ssize(target));
    backend.release(x);
    backend.release(y);
    ASSERT_TRUE(std::ranges::equal(input, inputs)) << "step " << step;
    ASSERT_TRUE(std::ranges::equal(target, targets)) << "step " << step;
  }
}

/// Evaluates an untrained model on all rows, with the resident dataset and with batches from the
/// host, and compares the values.
void expect_same_evaluation(Backend& backend, const Workspace& w, const TrainJob& job,
                            const std::vector<std::string>& names, bool on_device) {
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  const RunShape shape = check_recipe(job.recipe, job.model, schema, 1, backend.traits()).value();
  ASSERT_TRUE(shape.resident.has_value());
  EXPECT_EQ(shape.resident->evaluation_rows, on_device ? shape.evaluation_batch : 0);
  if (!on_device) return;
  const Split split = split_dataset(schema, shape.context_length, 0.2, 5);
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train,
                                            preprocessing_options(job.recipe, shape));
  Session session(compile_run(job.model, job.recipe, schema, shape).value(), backend);
  session.initialize(5);
  ASSERT_EQ(BatchSource::on_device({job.recipe, shape, data, p, split}, backend, session).kind(),
            BatchSource::Kind::kResident);
  Evaluator evaluator(session, schema, p, shape.objective, names);
  const Evaluation host = evaluator.evaluate(data.train(), split.validation);
  const Evaluation device =
      evaluator.evaluate(data.train(), split.validation, nullptr, RowsFrom::kDevice);
  EXPECT_FALSE(host.values.empty());
  EXPECT_EQ(device.values, host.values);
}

}  // namespace

DatasetSchema ingest_images(const Workspace& w, const Shape& image, bool bytes, int64_t rows) {
  std::string text;
  for (int64_t i = 0; i < image.elements(); ++i) text += "x" + std::to_string(i) + ",";
  text += "y\n";
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < image.elements(); ++i) {
      text += std::to_string(noise(row * image.elements() + i)) + (bytes ? "," : ".37,");
    }
    text += "class" + std::to_string(row % 3) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.image = {image[0], image[1], image[2]};
  const DatasetSchema schema = ingest_file(w, text, request);
  EXPECT_EQ(schema.image_dtype, bytes ? DType::kU8 : DType::kF32);
  return schema;
}

DatasetSchema ingest_table(const Workspace& w, int64_t rows) {
  std::string text = "a,b,c,d,y\n";
  for (int64_t i = 0; i < rows; ++i) {
    text += (i % 5 == 0 ? "" : std::to_string(0.1 * noise(i))) + ",u" + std::to_string(i % 4) +
            ",v" + std::to_string(i % 7) + "," + std::to_string(0.3 * noise(i + 999)) + "," +
            std::to_string(0.7 * noise(i + 77) + 0.5) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  return ingest_file(w, text, request);
}

DatasetSchema ingest_rows_of_text(const Workspace& w, int64_t rows) {
  std::string text = "y,words\n";
  for (int64_t i = 0; i < rows; ++i) {
    text += std::string(i % 2 == 0 ? "sport" : "money") + ",w" + std::to_string(i % 11) + " w" +
            std::to_string(noise(i) % 5) + " w" + std::to_string(i % 3) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.text = {"words"};
  request.csv.max_length = 6;
  return ingest_file(w, text, request);
}

DatasetSchema ingest_stream(const Workspace& w, int64_t length) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) text += static_cast<char>('a' + noise(i) % 7);
  IngestRequest request;
  request.format = "text";
  return ingest_file(w, text, request);
}

std::vector<AugmentationSpec> moves() {
  return {with("random_crop", {{"padding", int64_t{2}}}), with("random_horizontal_flip"),
          with("random_vertical_flip", {{"p", 0.3}}), with("cutout", {{"size", int64_t{3}}})};
}

TrainJob resident_job(const Workspace& w, const std::string& name, ModelSpec model) {
  TrainJob job;
  job.model = std::move(model);
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.seed = 5;
  job.recipe.steps = 9;
  job.recipe.batch_size = 16;
  job.recipe.validation_split = 0.2;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

ModelSpec dense_model() {
  return spec_of(
      {{"", "Gemm", {}, {{"units", int64_t{8}}}}, {"", "Tanh", {}, {}}, {"", "Gemm", {}, {}}});
}

ModelSpec autoencoder_model() {
  ModelSpec spec = dense_model();
  spec.target = "input";
  return spec;
}

ModelSpec bag_model() {
  return spec_of({{"", "EmbeddingBag", {}, {{"embedding_dim", int64_t{4}}}}, {"", "Gemm", {}, {}}});
}

ModelSpec next_token_model(int64_t vocabulary) {
  return spec_of({{"", "Embedding", {}, {{"embedding_dim", int64_t{8}}}},
                  {"", "Linear", {}, {{"units", vocabulary}}}});
}

void expect_resident_batches(Backend& backend) {
  const auto expect = [&](const Workspace& w, const DatasetSchema& schema, const ModelSpec& model,
                          const std::vector<AugmentationSpec>& augmentation = {}) {
    TrainJob job = resident_job(w, "a", model);
    job.recipe.augmentation = augmentation;
    job.recipe.drop_last = false;  // the last batch is completed by rows from the epoch's beginning
    if (schema.stream()) job.recipe.context_length = 5;
    expect_same_batches(backend, w, schema, job);
  };
  const std::vector<AugmentationSpec> box_moves_along = {
      with("cutout", {{"size", int64_t{2}}}), with("random_crop", {{"padding", int64_t{3}}})};
  // Sizes in elements: an image is a multiple of 4 but its planes are not; neither is; and lines
  // are.
  for (const Shape& image : {Shape{4, 3, 5}, Shape{3, 5, 7}, Shape{1, 6, 8}}) {
    for (const bool bytes : {true, false}) {
      SCOPED_TRACE(image.to_string() + (bytes ? " of bytes" : " of floats"));
      const Workspace w;
      const DatasetSchema schema = ingest_images(w, image, bytes, 50);
      for (const auto& list : {std::vector<AugmentationSpec>(), moves(), box_moves_along}) {
        SCOPED_TRACE(std::to_string(list.size()) + " augmentations");
        expect(w, schema, dense_model(), list);
      }
    }
  }
  {
    SCOPED_TRACE("a table");
    const Workspace w;
    const DatasetSchema schema = ingest_table(w, 50);
    ModelSpec codes;
    codes.preset = "mlp";
    codes.parameters.set("hidden", int64_t{8});
    codes.parameters.set("embedding", std::string("auto"));
    expect(w, schema, dense_model());
    expect(w, schema, codes);
  }
  {
    SCOPED_TRACE("rows of text");
    const Workspace w;
    expect(w, ingest_rows_of_text(w, 50), bag_model());
  }
  {
    SCOPED_TRACE("a stream");
    const Workspace w;
    const DatasetSchema schema = ingest_stream(w, 700);
    expect(w, schema, next_token_model(schema.text.vocabulary_size()));
  }
}

void expect_resident_evaluations(Backend& backend) {
  const std::vector<std::string> of_classes = {"loss", "accuracy"}, of_numbers = {"loss", "mae"};
  for (const bool bytes : {true, false}) {
    for (const bool moved : {false, true}) {
      SCOPED_TRACE(std::string(bytes ? "bytes" : "floats") + (moved ? " moved" : ""));
      const Workspace w;
      ingest_images(w, {3, 5, 7}, bytes, 50);
      TrainJob job = resident_job(w, "a", dense_model());
      if (moved) job.recipe.augmentation = moves();
      // Augmented float images are resident in edited form, which may differ in a bit.
      expect_same_evaluation(backend, w, job, of_classes, bytes || !moved);
    }
  }
  {
    SCOPED_TRACE("what a model makes of its input");
    const Workspace w;
    ingest_images(w, {3, 5, 7}, /*bytes=*/true, 50);
    TrainJob job = resident_job(w, "a", autoencoder_model());
    job.recipe.augmentation = moves();
    expect_same_evaluation(backend, w, job, of_numbers, true);
  }
  {
    SCOPED_TRACE("a table");
    const Workspace w;
    ingest_table(w, 50);
    expect_same_evaluation(backend, w, resident_job(w, "a", dense_model()), of_numbers, true);
  }
  {
    SCOPED_TRACE("rows of text");
    const Workspace w;
    ingest_rows_of_text(w, 50);
    expect_same_evaluation(backend, w, resident_job(w, "a", bag_model()), of_classes, true);
  }
  {
    SCOPED_TRACE("a stream");
    const Workspace w;
    const DatasetSchema schema = ingest_stream(w, 700);
    TrainJob job = resident_job(w, "a", next_token_model(schema.text.vocabulary_size()));
    job.recipe.context_length = 5;
    expect_same_evaluation(backend, w, job, {"loss"}, true);
  }
}

}  // namespace trainyard::testing
