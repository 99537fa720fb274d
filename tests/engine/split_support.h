// tests/engine/split_support.h: shared parts of the tests of layers that are split over ranks.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "src/job/train_job.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

using Change = std::function<void(TrainJob&)>;
/// Replaces the job's optimizer.
Change optimizer(const char* type, double rate, double momentum = 0);

/// Makes a dataset with the columns x0 .. x7 and a class y, from the lines that `write_row` writes.
/// Lines after the first `rows` are the test set.
void make_rows(const Workspace& w, int64_t rows, int64_t test_rows,
               const std::function<void(std::ostream& out, int64_t row)>& write_row);
/// Makes a dataset of rows of eight numbers that correlate with their class; each of `classes`
/// occurs at least once.
void make_classes(const Workspace& w, int64_t classes, int64_t rows);
/// Makes a dataset from a text of 13 letters; the tokenizer determines the vocabulary.
void make_text(const Workspace& w, int letters = 900, const char* tokenizer = "char");

/// Expects every series of `got` to be within `bound` of the one-device run `expected`.
void expect_the_curve(const Recorder& expected, const Recorder& got, double bound);
/// Runs the job in each sharding on each number of ranks. Expects the losses of one device and the
/// planned memory and parameter counts; `check` adds further checks of a run.
void expect_the_curve_on(
    const std::vector<int64_t>& all_ranks, const std::vector<Shard>& shards,
    const Recorder& expected, double bound,
    const std::function<TrainJob(const std::string& name, Shard shard)>& job_of,
    const std::function<void(const std::string& name, const Recorder& got)>& check = nullptr);
/// Calls expect_to_resume() for the job on 1 and 2 ranks with 1 and 2 micro-batches. `job_of`
/// applies a name and a change to the job.
void expect_to_resume_by_micro_batches(
    const std::function<TrainJob(const std::string& name, const Change& change)>& job_of);
/// Runs the job in one sharding after another, each for `steps_each` steps from the last checkpoint
/// of the one before, and expects the losses of one device.
void expect_the_curve_over(const std::vector<RankLayout>& legs, int64_t steps_each,
                           const Recorder& expected, const TrainJob& job);
/// Calls expect_to_resume() twice and expects the same bits each time.
void expect_the_same_bits_twice(const std::function<TrainJob(const std::string& name)>& job_of,
                                int64_t ranks, int64_t step);
/// Returns the largest difference between corresponding numbers of two jobs' weight files.
double distance(const TrainJob& a, const TrainJob& b);

}  // namespace trainyard::testing
