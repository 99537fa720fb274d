// Tests everything from MNIST's IDX files to the accuracy on its test set, with the recipes of
// examples/mnist_mlp.yaml and examples/mnist_lenet5.yaml. Skipped if TRAINYARD_TEST_DATA has no
// mnist/ folder.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "src/base/cores.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/runtime/open_backend.h"
#include "src/train/trainer.h"
#include "tests/engine/train_support.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using testing::Recorder;
using testing::Workspace;

std::filesystem::path mnist_folder() {
  const char* folder = std::getenv("TRAINYARD_TEST_DATA");
  return std::filesystem::path(folder != nullptr ? folder
                                                 : testing::source_path("../shared/data")) /
         "mnist";
}

class Mnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(mnist_folder())) {
      GTEST_SKIP() << "no MNIST in " << mnist_folder() << "; set TRAINYARD_TEST_DATA";
    }
    IngestRequest request;
    request.format = "idx";
    for (const auto& [role, file] : {std::pair{"train_images", "train-images-idx3-ubyte.gz"},
                                     std::pair{"train_labels", "train-labels-idx1-ubyte.gz"},
                                     std::pair{"test_images", "t10k-images-idx3-ubyte.gz"},
                                     std::pair{"test_labels", "t10k-labels-idx1-ubyte.gz"}}) {
      request.sources.push_back({role, mnist_folder() / file});
    }
    const auto schema = ingest(request, workspace_ / "dataset", local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
  }

  double test_accuracy(const ModelSpec& model, const Recipe& recipe) {
    TrainJob job;
    job.model = model;
    job.recipe = recipe;
    job.dataset = workspace_ / "dataset";
    job.checkpoints = workspace_ / "checkpoints";
    job.model_output = workspace_ / "model";
    job.threads = usable_cores();
    const auto backend = make_cpu_backend(job.threads);
    Recorder recorder;
    const auto start = std::chrono::steady_clock::now();
    const auto result = train(job, *backend, local_files(), recorder, {});
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message;
      return 0;
    }
    EXPECT_EQ(result->arena_planned_bytes, result->arena_used_bytes);
    const double accuracy = recorder.series["test/accuracy"].rbegin()->second;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("test accuracy %.4f after %lld steps in %.1f s\n", accuracy,
                static_cast<long long>(result->steps_done), seconds.count());
    return accuracy;
  }

  Workspace workspace_;
};

TEST_F(Mnist, MlpReaches98Percent) {
  ModelSpec model;
  model.preset = "mlp";
  model.parameters = {{"hidden", std::vector<int64_t>{512, 512}}, {"dropout", 0.2}};
  Recipe recipe;
  recipe.epochs = 5;
  recipe.batch_size = 128;
  recipe.optimizer.type = "adam";
  recipe.optimizer.learning_rate = 0.001;
  recipe.schedule.type = "cosine";
  recipe.seed = 1;
  EXPECT_GE(test_accuracy(model, recipe), 0.98);
}

Recipe lenet_recipe() {
  Recipe recipe;
  recipe.epochs = 3;
  recipe.batch_size = 64;
  recipe.optimizer.learning_rate = 0.03;
  recipe.optimizer.momentum = 0.9;
  recipe.schedule.type = "cosine";
  recipe.schedule.warmup_steps = 100;
  recipe.seed = 1;
  return recipe;
}

TEST_F(Mnist, LeNetReaches99Percent) {
  ModelSpec model;
  model.preset = "lenet5";
  EXPECT_GE(test_accuracy(model, lenet_recipe()), 0.99);
}

TEST_F(Mnist, LeNetReaches99PercentInBf16) {
  ModelSpec model;
  model.preset = "lenet5";
  Recipe recipe = lenet_recipe();
  recipe.precision = Precision::kBf16;
  EXPECT_GE(test_accuracy(model, recipe), 0.99);
}

}  // namespace
}  // namespace trainyard
