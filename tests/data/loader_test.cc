// The tests fail if batches depend on threads, on the queue or on where a run was resumed, rows are
// lost or repeated within an epoch, or the destructor of a loader hangs.
#include "src/data/load/loader.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include "src/base/philox.h"
#include "src/data/load/split.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

/// A dataset of 37 rows, each with its own number as the target, which identifies the rows of a
/// batch.
struct SmallDataset {
  SmallDataset() : dataset(csv_options("id"), text()) {
    rows.resize(37);
    std::iota(rows.begin(), rows.end(), 0);
    p = fit_preprocessing(dataset->schema(), dataset->train(), rows);
    p.target_mean = 0;
    p.target_std = 1;
  }
  static std::string text() {
    std::string text = "a,b,id\n";
    for (int i = 0; i < 37; ++i) {
      text += std::to_string(i * 0.25) + "," + std::string(i % 3 == 0 ? "u" : "v") + "," +
              std::to_string(i) + ".0\n";
    }
    return text;
  }
  std::vector<std::vector<float>> steps(const Loader::Options& options, int count,
                                        std::vector<float>* inputs = nullptr) const {
    Loader loader(dataset->schema(), p, dataset->train(), rows, options);
    std::vector<std::vector<float>> result;
    for (int i = 0; i < count; ++i) {
      const Batch& batch = loader.next();
      result.push_back(batch.target_numeric);
      if (inputs != nullptr) inputs->insert(inputs->end(), batch.input.begin(), batch.input.end());
    }
    return result;
  }
  IngestedCsv dataset;
  std::vector<int64_t> rows;
  Preprocessing p;
};

TEST(Loader, BatchesFollowTheEpochsPermutation) {
  const SmallDataset sample;
  Loader::Options options;
  options.batch_size = 5;
  options.seed = 11;
  const auto steps = sample.steps(options, 21);  // 7 steps per epoch
  std::set<std::vector<float>> epochs;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = permutation(37, 11, stream_of("shuffle"), epoch);
    std::vector<float> seen;
    for (size_t s = 0; s < 7; ++s) {
      for (const float id : steps[epoch * 7 + s]) {
        EXPECT_EQ(id, static_cast<float>(order[seen.size()]));
        seen.push_back(id);
      }
    }
    EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 35u);  // no row occurs twice
    epochs.insert(seen);
  }
  EXPECT_EQ(epochs.size(), 3u);
}

// Returns the order of PyTorch's DistributedSampler with drop_last=False: the epoch's order,
// followed by its beginning until the last batch is complete.
std::vector<float> completed_order(int64_t rows, const Loader::Options& options, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) order = permutation(rows, options.seed, stream_of("shuffle"), epoch);
  std::vector<float> places(order.begin(), order.end());
  while (std::ssize(places) % options.batch_size != 0) {
    const auto missing = options.batch_size - std::ssize(places) % options.batch_size;
    places.insert(places.end(), order.begin(), order.begin() + std::min(missing, rows));
  }
  return places;
}

TEST(Loader, WithoutDropLastTheFirstRowsOfTheOrderCompleteTheLastBatch) {
  const SmallDataset sample;
  for (const int64_t batch : {1, 5, 18, 36, 37, 38, 64, 100}) {
    for (const bool shuffle : {false, true}) {
      SCOPED_TRACE(std::to_string(batch) + (shuffle ? " shuffled" : ""));
      Loader::Options options;
      options.batch_size = batch;
      options.seed = 11;
      options.shuffle = shuffle;
      options.drop_last = false;
      const int64_t per_epoch = (37 + batch - 1) / batch;
      EXPECT_EQ(batches_per_epoch(37, batch, false), per_epoch);
      const auto steps = sample.steps(options, static_cast<int>(3 * per_epoch));
      for (uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<float> seen;
        for (int64_t s = 0; s < per_epoch; ++s) {
          const auto& ids = steps[epoch * static_cast<size_t>(per_epoch) + static_cast<size_t>(s)];
          EXPECT_EQ(std::ssize(ids), batch);
          seen.insert(seen.end(), ids.begin(), ids.end());
        }
        EXPECT_EQ(seen, completed_order(37, options, epoch));
        EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 37u) << "each row";
      }
    }
  }
}

TEST(Loader, InputsAreTheTransformedRows) {
  const SmallDataset sample;
  Loader::Options options;
  options.batch_size = 4;
  options.shuffle = false;
  std::vector<float> inputs;
  const auto steps = sample.steps(options, 10, &inputs);
  EXPECT_EQ(steps[0], (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(steps[9], steps[0]);  // an epoch has 9 steps, and row 36 is left out
  for (int64_t row = 0; row < 36; ++row) {
    float expected[3];
    transform_row(sample.dataset->schema(), sample.p, sample.dataset->train(), row, expected);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(inputs[static_cast<size_t>(row) * 3 + i], expected[i]);
  }
}

TEST(Loader, SameBatchesForAnyThreadsQueueAndTiming) {
  const SmallDataset sample;
  Loader::Options options;
  options.batch_size = 3;
  options.seed = 5;
  std::vector<float> inputs;
  const auto expected = sample.steps(options, 60, &inputs);
  for (const int threads : {1, 2, 5}) {
    for (const int64_t prefetch : {1, 2, 3, 50}) {
      options.threads = threads;
      options.prefetch_batches = prefetch;
      std::vector<float> again;
      EXPECT_EQ(sample.steps(options, 60, &again), expected) << threads << " " << prefetch;
      EXPECT_EQ(again, inputs);
      Loader slow(sample.dataset->schema(), sample.p, sample.dataset->train(), sample.rows,
                  options);
      for (size_t i = 0; i < 60; ++i) {
        const Batch& batch = slow.next();
        if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(batch.target_numeric, expected[i]);  // stays valid until the next next()
      }
    }
  }
}

// An order has a number for each row, and each epoch has its own order.
TEST(Loader, OrdersOfPastEpochsAreReleased) {
  const SmallDataset sample;
  constexpr int64_t kRows = 1 << 17;  // an order takes 1 MiB
  const std::vector<int64_t> rows(kRows, 3);
  Loader::Options options;
  options.batch_size = kRows;
  Loader loader(sample.dataset->schema(), sample.p, sample.dataset->train(), rows, options);
  const auto used = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  for (int i = 0; i < 8; ++i) (void)loader.next();
  const int64_t before = used();
  for (int i = 0; i < 32; ++i) (void)loader.next();
  EXPECT_LT(used() - before, 16 << 20);
}

TEST(Loader, ResumeContinuesWithTheSameBatches) {
  const SmallDataset sample;
  for (const bool drop_last : {true, false}) {
    Loader::Options options;
    options.batch_size = 5;
    options.seed = 3;
    options.drop_last = drop_last;
    const auto whole = sample.steps(options, 40);
    for (int first = 0; first < 40; ++first) {
      options.first_step = first;
      const auto rest = sample.steps(options, 40 - first);
      EXPECT_EQ(rest, (std::vector<std::vector<float>>(whole.begin() + first, whole.end())));
    }
  }
}

TEST(Loader, ASubsetOfRowsStaysASubset) {
  const SmallDataset sample;
  const Split split = split_rows(37, 0.3, 1);
  const std::set<int64_t> train(split.train.begin(), split.train.end());
  Loader::Options options;
  options.batch_size = 26;
  Loader loader(sample.dataset->schema(), sample.p, sample.dataset->train(), split.train, options);
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  for (int epoch = 0; epoch < 20; ++epoch) {
    std::set<int64_t> seen;
    for (const float id : loader.next().target_numeric) seen.insert(static_cast<int64_t>(id));
    EXPECT_EQ(seen, train);
  }
}

TEST(Loader, DestructorNeverHangs) {
  const SmallDataset sample;
  Loader::Options options;
  options.batch_size = 2;
  for (int i = 0; i < 300; ++i) {
    options.threads = 1 + i % 3;
    options.prefetch_batches = 1 + i % 4;
    Loader loader(sample.dataset->schema(), sample.p, sample.dataset->train(), sample.rows,
                  options);
    for (int k = 0; k < i % 5; ++k) (void)loader.next();
  }
}

TEST(Loader, ImpossibleOptionsAreFaults) {
  const SmallDataset sample;
  const auto make = [&](Loader::Options options, std::vector<int64_t> rows) {
    Loader(sample.dataset->schema(), sample.p, sample.dataset->train(), std::move(rows), options);
  };
  Loader::Options options;
  options.batch_size = 38;
  EXPECT_THROW(make(options, sample.rows), InvariantError);
  options.batch_size = 1;
  EXPECT_THROW(make(options, {}), InvariantError);
  options.drop_last = false;
  EXPECT_THROW(make(options, {}), InvariantError);
  EXPECT_THROW(make(options, {37}), InvariantError);
  EXPECT_THROW(make(options, {-1}), InvariantError);
}

TEST(FillBatch, UsesRowsInOrderWithAShortLastBatch) {
  const SmallDataset sample;
  const RowTransform transform(sample.dataset->schema(), sample.p);
  Batch batch;
  const std::vector<int64_t> rows = {36, 0, 5};
  fill_batch(transform, sample.dataset->train(), rows, batch);
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.target_numeric, (std::vector<float>{36, 0, 5}));
  EXPECT_EQ(batch.input.size(), 9u);
  EXPECT_TRUE(batch.target_class.empty());
}

}  // namespace
}  // namespace trainyard
