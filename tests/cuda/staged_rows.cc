#include "tests/cuda/staged_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/train/staged_rows.h"

namespace trainyard::testing {
namespace {

const Shape kImages[] = {{4, 3, 5}, {3, 5, 7}, {1, 6, 8}};

}  // namespace

void expect_staged_batches(Backend& backend) {
  for (const Shape& image : kImages) {
    for (const bool moved : {false, true}) {
      SCOPED_TRACE(image.to_string() + (moved ? " moved" : ""));
      const ImageJob images(image, moved ? moves() : std::vector<AugmentationSpec>(), 2);
      ASSERT_TRUE(images.shape.staged.has_value());
      const int64_t part = images.shape.rank_batch;
      ASSERT_EQ(part, 8);
      const Augmenter augmenter =
          make_augmenter(images.job.recipe.augmentation, images.schema(), images.p);
      StagedRows rows(backend, {*images.shape.staged,
                                RowTransform(images.schema(), images.p),
                                {augmenter.mean().begin(), augmenter.mean().end()}});
      Loader host = images.loader(BatchSource::Kind::kHost);
      Loader stored = images.loader(BatchSource::Kind::kStaged);
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

}  // namespace trainyard::testing
