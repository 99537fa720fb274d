// Catches: a batch of images that was staged to a GPU in stored form and differs from the host's in
// a bit; rows of another rank or micro-batch; rows copied over rows that a step still reads (the
// emulated streams run as late as possible, fake_cuda.h); memory missing from the plan; images of 8
// bits that are still staged as floats.
#include <gtest/gtest.h>

#include "src/job/train_job.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"
#include "src/runtime/cuda/backend.h"
#include "src/train/loop.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/resident_rows.h"
#include "tests/cuda/staged_rows.h"

namespace trainyard {
namespace {

using testing::ImageJob;
using testing::Workspace;

/// The first copy allocates the backend's staging buffers.
void copy_once(Backend& backend) {
  void* const memory = backend.allocate(1);
  backend.copy_to_device(memory, "", 1);
  backend.release(memory);
}

TEST(StagedRows, BatchesAreTheHosts) {
  cuda::CudaBackend backend(0);
  testing::expect_staged_batches(backend);
}

TEST(StagedRows, TakeTheMemoryThatIsPlanned) {
  cuda::CudaBackend backend(0);
  copy_once(backend);
  for (const bool moved : {false, true}) {
    const ImageJob images({3, 5, 7}, moved ? testing::moves() : std::vector<AugmentationSpec>(), 2);
    ASSERT_TRUE(images.shape.staged.has_value());
    const Augmenter augmenter =
        make_augmenter(images.job.recipe.augmentation, images.schema(), images.p);
    const int64_t before = testing::device_bytes();
    const StagedRows rows(backend, {*images.shape.staged,
                                    RowTransform(images.schema(), images.p),
                                    {augmenter.mean().begin(), augmenter.mean().end()}});
    EXPECT_EQ(testing::device_bytes() - before, images.shape.staged->bytes);
  }
}

TEST(StagedRows, TrainAsFromTheHostAndAllocateNothing) {
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(std::to_string(parts) + " micro-batches");
    const ImageJob images({3, 5, 7}, testing::moves(), parts);
    const auto train = [&](bool is_staged) {
      cuda::CudaBackend backend(0);
      Session session(compile_step(images.job.model, images.job.recipe, images.schema().interface(),
                                   {}, backend.traits())
                          .value(),
                      backend, images.shape.micro_batches);
      session.initialize(5);
      const auto kind = is_staged ? BatchSource::on_device(images.inputs(), backend, session).kind()
                                  : BatchSource::Kind::kHost;
      EXPECT_EQ(kind == BatchSource::Kind::kStaged, is_staged);
      EXPECT_EQ(images.shape.rank_batch, 16 / parts);
      Loader loader = images.loader(kind);
      std::vector<float> losses;
      int64_t bytes = 0;
      for (int64_t step = 0; step < 6; ++step) {
        const Batch& b = loader.next();
        if (step == 2) bytes = testing::device_bytes();  // after the step has been recorded
        losses.push_back(session
                             .run_step({b.input_bytes(), b.target_bytes(), step, 0.01f, b.samples,
                                        std::as_bytes(std::span(b.stored))})
                             .loss);
      }
      EXPECT_EQ(testing::device_bytes(), bytes);
      return std::pair(losses, session.snapshot().storage);
    };
    EXPECT_EQ(train(true), train(false));
  }
}

// Each rank receives exactly the rows that it computes.
TEST(StagedRows, OnTwoRanksTrainAsFromTheHost) {
  testing::set_device_count(2);
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(std::to_string(parts) + " micro-batches");
    const ImageJob images({3, 5, 7}, testing::moves(), parts, /*ranks=*/2);
    const auto train = [&](bool is_staged) {
      const std::vector<RankDevice> devices =
          testing::connected(2, [](int r) { return std::make_shared<cuda::CudaBackend>(r); });
      std::vector<RunPrograms> programs;
      for (int64_t r = 0; r < 2; ++r) {
        programs.push_back(
            compile_run(images.job.model, images.job.recipe, images.schema(), images.shape, r)
                .value());
      }
      ReplicatedSession session(std::move(programs), devices, images.shape.micro_batches);
      session.initialize(5);
      const auto kind =
          is_staged
              ? BatchSource::on_device(images.inputs(), *devices.front().backend, session).kind()
              : BatchSource::Kind::kHost;
      EXPECT_EQ(kind == BatchSource::Kind::kStaged, is_staged);
      EXPECT_EQ(images.shape.rank_batch, 8 / parts);
      Loader loader = images.loader(kind);
      std::vector<float> losses;
      for (int64_t step = 0; step < 6; ++step) {
        const Batch& b = loader.next();
        losses.push_back(session
                             .run_step({b.input_bytes(), b.target_bytes(), step, 0.01f, b.samples,
                                        std::as_bytes(std::span(b.stored))})
                             .loss);
      }
      session.check_replicas(6);
      return std::pair(losses, session.snapshot().storage);
    };
    EXPECT_EQ(train(true), train(false));
  }
}

// Plans with the schema only, since no such large dataset exists here.
TEST(StagedRows, ArePlannedWhereTheyAreTooManyToBeHeld) {
  const Workspace w;
  DatasetSchema schema = testing::ingest_images(w, {3, 5, 7}, true, 50);
  TrainJob job = testing::resident_job(w, "planned", testing::dense_model());
  const auto shape_of = [&](const DatasetSchema& s) {
    return check_recipe(job.recipe, job.model, s, 1, testing::kGpuTraits).value();
  };
  EXPECT_TRUE(shape_of(schema).resident.has_value());
  EXPECT_FALSE(shape_of(schema).staged.has_value());
  schema.train_rows = kResidentBytesMax / (3 * 5 * 7) + 1;
  const RunShape many = shape_of(schema);
  EXPECT_FALSE(many.resident.has_value());
  ASSERT_TRUE(many.staged.has_value());
  EXPECT_EQ(many.staged->form.data_bytes(), 16 * 3 * 5 * 7);
  const auto programs =
      compile_step(job.model, job.recipe, schema.interface(), {}, testing::kGpuTraits).value();
  EXPECT_EQ(describe_run(programs, many, job.recipe).dataset_bytes, many.staged->bytes);
  schema.image_dtype = DType::kF32;
  EXPECT_FALSE(shape_of(schema).staged.has_value()) << "as floats nothing is gained";
  schema.image_dtype = DType::kU8;
  job.recipe.augmentation = {{"random_rotation", {{"degrees", 10.0}}}};
  EXPECT_FALSE(shape_of(schema).staged.has_value()) << "the host must make these";
}

}  // namespace
}  // namespace trainyard
