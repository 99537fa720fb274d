// tests/engine/split_support.h: what tests of layers that are split over ranks share.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "src/job/train_job.h"
#include "tests/engine/rank_support.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

using Change = std::function<void(TrainJob&)>;
/// Another optimizer than the job's.
Change optimizer(const char* type, double rate, double momentum = 0);

/// A dataset of x0 .. x7 and a class y, from the lines that `write_row` writes; those behind the
/// first `rows` are for tests.
void make_rows(const Workspace& w, int64_t rows, int64_t test_rows,
               const std::function<void(std::ostream& out, int64_t row)>& write_row);
/// A dataset of rows of eight numbers that lean towards their class, each of `classes` at least
/// once.
void make_classes(const Workspace& w, int64_t classes, int64_t rows);
/// A dataset of a text of 13 letters, of which the tokenizer makes a vocabulary.
void make_text(const Workspace& w, int letters = 900, const char* tokenizer = "char");

/// Every series of one device within `bound`.
void expect_the_curve(const Recorder& expected, const Recorder& got, double bound);
/// The job of `job_of`, in each of the layouts on each number of ranks: the losses of one device,
/// the memory and the numbers of parameters that are planned; and what `check` says of one.
void expect_the_curve_on(
    const std::vector<int64_t>& all_ranks, const std::vector<Shard>& shards,
    const Recorder& expected, double bound,
    const std::function<TrainJob(const std::string& name, Shard shard)>& job_of,
    const std::function<void(const std::string& name, const Recorder& got)>& check = nullptr);
/// The job, by name and with a change, on 1 and 2 ranks by 1 and 2 micro-batches, as
/// expect_to_resume() has it.
void expect_to_resume_by_micro_batches(
    const std::function<TrainJob(const std::string& name, const Change& change)>& job_of);
/// The job, layout after layout, each from the checkpoint that the one before wrote after so many
/// steps: the losses of one device.
void expect_the_curve_over(const std::vector<RankLayout>& legs, int64_t steps_each,
                           const Recorder& expected, const TrainJob& job);
/// The job, by name, as expect_to_resume() has it, and the same bits each time.
void expect_the_same_bits_twice(const std::function<TrainJob(const std::string& name)>& job_of,
                                int64_t ranks, int64_t step);
/// The largest difference of a number of two jobs' weight files, of the same tensors.
double distance(const TrainJob& a, const TrainJob& b);

}  // namespace trainyard::testing
