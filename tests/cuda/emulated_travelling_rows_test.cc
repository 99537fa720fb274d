// Catches: a batch of images that travelled to a GPU as they are stored and that differs from the
// host's in a bit; rows of another rank or micro-batch; rows that are brought over those that a
// step still reads (the emulated streams run as late as they may, fake_cuda.h); memory that the
// plan does not tell; images of 8 bits that go on travelling as floats.
#include <gtest/gtest.h>

#include "src/runtime/cuda/backend.h"
#include "src/train/loop.h"
#include "src/train/programs.h"
#include "src/train/recipe_check.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/held_rows.h"
#include "tests/cuda/ranks.h"

namespace trainyard {
namespace {

using testing::Workspace;

constexpr DeviceTraits kGpu{kCudaAlignment, Processor::kGpu};

/// A job on images of 8 bits, and what it trains on.
struct ImageJob {
  Workspace w;
  TrainJob job;
  std::optional<Dataset> data;
  RunShape shape;
  Split split;
  Preprocessing p;

  ImageJob(const Shape& image, std::vector<AugmentationSpec> augmentation, int64_t parts,
           int64_t ranks = 1) {
    testing::set_device_count(2);
    testing::ingest_images(w, image, /*bytes=*/true, 50);
    job = testing::held_job(w, "images", testing::dense_model());
    job.recipe.augmentation = std::move(augmentation);
    job.recipe.accumulate_steps = parts;
    data.emplace(Dataset::open(w / "dataset", false).value());
    shape = check_recipe(job.recipe, job.model, schema(), ranks, kGpu).value();
    // As if they were too many to be held.
    shape.held.reset();
    shape.travel = plan_travel(job.recipe, schema(), shape.rank_batch, kGpu.alignment);
    split = split_dataset(schema(), 0, 0.2, 5);
    p = fit_preprocessing(schema(), data->train(), split.train);
  }
  const DatasetSchema& schema() const { return data->schema(); }
  Loader loader(int64_t stored_rows) const {
    return Loader(schema(), p, data->train(), split.train,
                  loader_options(job.recipe, schema(), p, split, 0, false, stored_rows));
  }
};

const Shape kImages[] = {{4, 3, 5}, {3, 5, 7}, {1, 6, 8}};

/// Its staging is there from the first copy on.
void copy_once(Backend& backend) {
  void* const memory = backend.allocate(1);
  backend.copy_to_device(memory, "", 1);
  backend.release(memory);
}

TEST(TravellingRows, BatchesAreTheHosts) {
  cuda::CudaBackend backend(0);
  copy_once(backend);
  for (const Shape& image : kImages) {
    for (const bool moved : {false, true}) {
      SCOPED_TRACE(image.to_string() + (moved ? " moved" : ""));
      const ImageJob images(image, moved ? testing::moves() : std::vector<AugmentationSpec>(), 2);
      ASSERT_TRUE(images.shape.travel.has_value());
      const int64_t part = images.shape.rank_batch;
      ASSERT_EQ(part, 8);
      const Augmenter augmenter =
          make_augmenter(images.job.recipe.augmentation, images.schema(), images.p);
      const int64_t before = testing::device_bytes();
      TravellingRows rows(backend, {*images.shape.travel,
                                    RowTransform(images.schema(), images.p),
                                    {augmenter.mean().begin(), augmenter.mean().end()}});
      EXPECT_EQ(testing::device_bytes() - before, images.shape.travel->bytes);
      Loader host = images.loader(0), stored = images.loader(part);
      for (int64_t step = 0; step < 2 * host.steps_per_epoch() + 1; ++step) {
        const Batch& expected = host.next();
        const Batch& asked = stored.next();
        EXPECT_EQ(asked.target_class, expected.target_class);
        EXPECT_TRUE(asked.input.empty());
        EXPECT_EQ(4 * asked.stored.size(), expected.input_bytes().size());
        for (size_t k = 0; k < 2; ++k) {
          const auto half = [&](auto batch) {
            return batch.subspan(k * batch.size() / 2, batch.size() / 2);
          };
          const auto inputs = half(expected.input_bytes()), targets = half(expected.target_bytes());
          std::vector<std::byte> input(inputs.size()), target(targets.size());
          auto* const x = static_cast<std::byte*>(backend.allocate(std::ssize(input)));
          auto* const y = static_cast<std::byte*>(backend.allocate(std::ssize(target)));
          backend.copy_block_to_device(rows.pieces(half(std::span(asked.samples)),
                                                   half(std::as_bytes(std::span(asked.stored)))));
          rows.gather(x, y);
          backend.synchronize();
          backend.copy_to_host(input.data(), x, std::ssize(input));
          backend.copy_to_host(target.data(), y, std::ssize(target));
          backend.release(x);
          backend.release(y);
          ASSERT_TRUE(std::ranges::equal(input, inputs)) << "step " << step;
          ASSERT_TRUE(std::ranges::equal(target, targets)) << "step " << step;
        }
      }
    }
  }
}

TEST(TravellingRows, TrainAsFromTheHostAndAllocateNothing) {
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(std::to_string(parts) + " micro-batches");
    const ImageJob images({3, 5, 7}, testing::moves(), parts);
    const auto train = [&](bool travels) {
      cuda::CudaBackend backend(0);
      Session session(compile_step(images.job.model, images.job.recipe, images.schema().interface(),
                                   {}, backend.traits())
                          .value(),
                      backend, images.shape.micro_batches);
      session.initialize(5);
      int64_t stored = 0;
      if (travels) {
        stored =
            travel_rows(images.job.recipe, images.shape, *images.data, images.p, backend, session);
        EXPECT_EQ(stored, 16 / parts);
      }
      Loader loader = images.loader(stored);
      std::vector<float> losses;
      int64_t bytes = 0;
      for (int64_t step = 0; step < 6; ++step) {
        const Batch& b = loader.next();
        if (step == 2) bytes = testing::device_bytes();  // behind the recording
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

// Each rank is brought the rows that it computes, and no other.
TEST(TravellingRows, OnTwoRanksTrainAsFromTheHost) {
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(std::to_string(parts) + " micro-batches");
    const ImageJob images({3, 5, 7}, testing::moves(), parts, /*ranks=*/2);
    const auto train = [&](bool travels) {
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
      int64_t stored = 0;
      if (travels) {
        stored = travel_rows(images.job.recipe, images.shape, *images.data, images.p,
                             *devices.front().backend, session);
        EXPECT_EQ(stored, 8 / parts);
      }
      Loader loader = images.loader(stored);
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

// What is planned with, of a dataset that nobody has here: its schema alone.
TEST(TravellingRows, ArePlannedWhereTheyAreTooManyToBeHeld) {
  const Workspace w;
  DatasetSchema schema = testing::ingest_images(w, {3, 5, 7}, true, 50);
  TrainJob job = testing::held_job(w, "planned", testing::dense_model());
  const auto shape_of = [&](const DatasetSchema& s) {
    return check_recipe(job.recipe, job.model, s, 1, kGpu).value();
  };
  EXPECT_TRUE(shape_of(schema).held.has_value());
  EXPECT_FALSE(shape_of(schema).travel.has_value());
  schema.train_rows = kHeldBytesMax / (3 * 5 * 7) + 1;
  const RunShape many = shape_of(schema);
  EXPECT_FALSE(many.held.has_value());
  ASSERT_TRUE(many.travel.has_value());
  EXPECT_EQ(many.travel->form.data_bytes(), 16 * 3 * 5 * 7);
  const auto programs = compile_step(job.model, job.recipe, schema.interface(), {}, kGpu).value();
  EXPECT_EQ(describe_run(programs, many, job.recipe).dataset_bytes, many.travel->bytes);
  schema.image_dtype = DType::kF32;
  EXPECT_FALSE(shape_of(schema).travel.has_value()) << "as floats nothing is gained";
  schema.image_dtype = DType::kU8;
  job.recipe.augmentation = {{"random_rotation", {{"degrees", 10.0}}}};
  EXPECT_FALSE(shape_of(schema).travel.has_value()) << "the host must make these";
}

}  // namespace
}  // namespace trainyard
