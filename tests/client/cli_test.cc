// Tests of the real program against the fake server: its stdout, its stderr and its exit code.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/client/cli_fixture.h"
#include "tests/client/fake_server.h"
#include "tests/support/patience.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

TEST_F(Cli, SubmitPrintsTheNameAlone) {
  const Done done = run({"submit", spec()});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "digits-1\n");
  EXPECT_EQ(done.err, "") << "hints are for terminals";
  ASSERT_EQ(server_.state().submits.size(), 1u);
  EXPECT_EQ(server_.state().submits[0].request_id().size(), 36u);
  EXPECT_EQ(server_.state().submits[0].spec().dataset().name(), "digits");
}

TEST_F(Cli, SubmitReadsStandardInputAndAppliesSet) {
  const Done done =
      run({"submit", "-", "--set", "recipe.epochs=7", "--set=name=other-name"}, slurp(spec()));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "other-name\n");
  EXPECT_EQ(server_.state().submits[0].spec().recipe().epochs(), 7);
}

TEST_F(Cli, SubmitUploadsTheDataThatASpecNames) {
  const std::string text =
      "dataset: {path: " + testing::source_path("examples/digits.csv.gz") +
      ", csv: {target: c64}}\n"
      "model: {lenet5: }\nrecipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n";
  const Done done = run({"submit", spec(text)});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "job-made1\n");
  EXPECT_EQ(server_.state().submits[0].spec().dataset().name(),
            "projects/default/datasets/d-0123456789abcdef@1");
  EXPECT_EQ(server_.state().complete.size(), 1u);
}

TEST_F(Cli, UploadPrintsTheVersion) {
  const std::vector<std::string> upload = {
      "dataset",  "upload", "--csv",  testing::source_path("examples/digits.csv.gz"),
      "--target", "c64",    "--name", "digits"};
  Done done = run(upload);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "digits@1\n");
  EXPECT_EQ(done.err, "");
  done = run(upload);
  EXPECT_EQ(done.out, "digits@1\n");
  EXPECT_EQ(done.err, "digits@1: the same content as before\n");
  server_.state().dataset_changes = true;
  done = run(upload);
  EXPECT_EQ(done.out, "digits@2\n");
  EXPECT_EQ(done.err, "digits@2: a new version; digits@1 is kept\n");
  const std::string text =
      "dataset: {name: digits, path: " + testing::source_path("examples/digits.csv.gz") +
      ", csv: {target: c64}}\n"
      "model: {lenet5: }\nrecipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n";
  done = run({"submit", spec(text)});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.err, "digits@3: a new version; digits@2 is kept\n");
  EXPECT_EQ(server_.state().submits[0].spec().dataset().name(),
            "projects/default/datasets/digits@3");
}

TEST_F(Cli, DryRunSubmitsNothing) {
  const Done done = run({"submit", spec(), "--dry-run"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("1,234,567"), std::string::npos) << done.out;
  EXPECT_TRUE(server_.state().submits[0].validate_only());
  EXPECT_TRUE(server_.state().jobs.empty());
}

v1::JobPlan deep_plan(int blocks) {
  v1::JobPlan plan;
  const auto add = [&](const std::string& name, const std::string& op, int64_t parameters) {
    v1::LayerPlan& layer = *plan.add_layers();
    layer.set_name(name);
    layer.set_op(op);
    layer.add_output_shape(64);
    layer.add_output_shape(128);
    layer.set_parameter_count(parameters);
    layer.set_flops_step(2'000'000);
  };
  add("stem", "Gemm", 100);
  for (int k = 0; k < blocks; ++k) {
    const std::string name =
        "block" + std::to_string(k) + "_with_a_name_that_is_far_too_long_to_show";
    add(name + "_gemm", "Gemm", 5000);
    add(name + "_relu", "Relu", 0);
  }
  add("head", "Gemm", 10);
  plan.mutable_run()->set_parameter_count(1234567);
  plan.mutable_run()->set_steps_total(100);
  plan.mutable_run()->set_steps_per_epoch(10);
  plan.mutable_run()->mutable_memory()->set_parameter_bytes(4 << 20);
  plan.mutable_run()->mutable_memory()->set_activation_bytes(1 << 20);
  plan.mutable_fit()->set_fits(true);
  plan.set_device("devices/cpu");
  return plan;
}

TEST_F(Cli, PlanShowsTheCostOfThePrecisionOnItsDevice) {
  const auto described = [&](v1::Recipe::Precision precision, const char* device) {
    server_.state().plan = deep_plan(1);
    server_.state().plan.mutable_run()->set_precision(precision);
    server_.state().plan.set_device(device);
    const std::string out = run({"plan", spec()}).out;
    const size_t at = out.find("precision");
    return at == out.npos ? out : out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_NE(described(v1::Recipe::TF32, "devices/gpu-0").find("fp32 does not and is up to"),
            std::string::npos);
  EXPECT_NE(described(v1::Recipe::FP32, "devices/gpu-0").find("tf32 is up to"), std::string::npos);
  const std::string on_cpu = described(v1::Recipe::FP32, "devices/cpu");
  EXPECT_TRUE(on_cpu.ends_with(" fp32")) << on_cpu;  // no remark about costs
  EXPECT_NE(described(v1::Recipe::BF16, "devices/cpu").find("slower than fp32"), std::string::npos);
  EXPECT_EQ(described(v1::Recipe::FP16, "devices/gpu-0").find("slower"), std::string::npos);
}

TEST_F(Cli, PlanShowsTheLongestTimeLostByAKill) {
  const auto described = [&](int64_t steps, double seconds) {
    server_.state().plan = deep_plan(1);
    v1::CheckpointPlan& plan = *server_.state().plan.mutable_run()->mutable_checkpoints();
    plan.set_size_bytes(3 << 20);
    plan.set_lost_steps_max(steps);
    plan.set_lost_seconds_max(seconds);
    const std::string out = run({"plan", spec()}).out;
    const size_t at = out.find("3 MiB, ");
    return at == out.npos ? out : out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_EQ(described(40, 0),
            "3 MiB, every 40 steps; an interruption loses at most 40 steps of work");
  EXPECT_EQ(described(1, 0), "3 MiB, every 1 step; an interruption loses at most 1 step of work");
  EXPECT_EQ(
      described(0, 102),
      "3 MiB, written in under 1% of the run's time; an interruption loses at most 102 s of work");
}

TEST_F(Cli, PlanShowsTheExchangeOfGpusAndTheSavingsOfSharding) {
  server_.state().plan = deep_plan(1);
  v1::RunPlan& plan = *server_.state().plan.mutable_run();
  EXPECT_EQ(run({"plan", spec()}).out.find("exchanges"), std::string::npos);
  for (const char* kind : {"reduce_scatter", "all_gather"}) {
    v1::Exchange& exchange = *plan.add_exchanges();
    exchange.set_kind(kind);
    exchange.set_count(3);
    exchange.set_bytes(40 << 20);
    exchange.set_sent_bytes(30 << 20);
  }
  plan.set_shard_saved_bytes(60 << 20);
  const std::string out = run({"plan", spec()}).out;
  EXPECT_NE(out.find("reduce_scatter of 40 MiB in 3, all_gather of 40 MiB in 3; each GPU sends at "
                     "least 60 MiB a step"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("the optimizer's state: each GPU stores 60 MiB less than all of it"),
            std::string::npos)
      << out;
  plan.clear_exchanges();
  v1::Exchange& rows = *plan.add_exchanges();
  rows.set_kind("gather_rows");
  rows.set_axis("rows");
  rows.set_count(2);
  rows.set_bytes(8 << 20);
  rows.set_sent_bytes(6 << 20);
  plan.set_head_saved_bytes(20 << 20);
  const std::string split = run({"plan", spec()}).out;
  EXPECT_NE(
      split.find("gather_rows of 8 MiB in 2 along rows; each GPU sends at least 6 MiB a step"),
      std::string::npos)
      << split;
  EXPECT_NE(split.find("the head's weights: each GPU stores 20 MiB less than all of them"),
            std::string::npos)
      << split;
  plan.set_mlp_saved_bytes(10 << 20);
  for (int i = 0; i < 10; ++i) {
    v1::SplitPair& pair = *plan.add_split_pairs();
    pair.set_first("fc" + std::to_string(2 * i));
    pair.set_second("fc" + std::to_string(2 * i + 1));
    pair.set_units(4096);
    pair.set_saved_bytes(24 << 20);
    pair.set_exchanged_bytes(3 << 20);
  }
  const std::string pairs = run({"plan", spec()}).out;
  EXPECT_NE(pairs.find("weights of pairs of layers: each GPU stores 10 MiB less than all of them"),
            std::string::npos)
      << pairs;
  EXPECT_NE(pairs.find("fc0 and fc1 (4,096 units): 24 MiB less for 3 MiB exchanged in a step, fc2"),
            std::string::npos)
      << pairs;
  EXPECT_NE(pairs.find("fc14 and fc15 (4,096 units): 24 MiB less for 3 MiB exchanged in a step, "
                       "and 2 more"),
            std::string::npos)
      << pairs;
  plan.clear_shard_saved_bytes();
  plan.clear_head_saved_bytes();
  plan.set_parameter_saved_bytes(90 << 20);
  const std::string parameters = run({"plan", spec()}).out;
  EXPECT_NE(parameters.find("the parameters: each GPU stores 90 MiB less than all of them"),
            std::string::npos)
      << parameters;
}

TEST_F(Cli, PlanOfADatasetsNameAsksTheServer) {
  server_.state().plan = deep_plan(1);
  server_.state().plan.mutable_run()->set_precision(v1::Recipe::TF32);
  server_.state().plan.mutable_run()->mutable_memory()->set_dataset_bytes(7 << 20);
  const Done done = run({"plan", spec()});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("tf32: on a CPU the same bits and time as fp32"), std::string::npos)
      << done.out;
  EXPECT_NE(done.out.find("1,234,567"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("block0"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("parameters"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("dataset        7 MiB"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("12 MiB"), std::string::npos) << "in all\n" << done.out;
  ASSERT_EQ(server_.state().plans.size(), 1u);
  EXPECT_EQ(server_.state().plans[0].spec().dataset().name(), "digits");
  EXPECT_TRUE(server_.state().submits.empty());
  const Done dump = run({"plan", spec(), "--dump", "memory"});
  EXPECT_EQ(dump.out, "the dump\n");
  EXPECT_EQ(server_.state().plans[1].dump(), v1::PlanJobRequest::MEMORY);
}

TEST_F(Cli, PlanShowsARepeatedBlockOnceAndShortensNames) {
  server_.state().plan = deep_plan(40);
  const Done done = run({"plan", spec()});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("39 times more"), std::string::npos) << done.out;
  EXPECT_LT(std::count(done.out.begin(), done.out.end(), '\n'), 21) << done.out;
  EXPECT_EQ(done.out.find("far_too_long_to_show_gemm"), std::string::npos) << done.out;
  const Done all = run({"plan", spec(), "--layers", "all"});
  EXPECT_GT(std::count(all.out.begin(), all.out.end(), '\n'), 80);
  EXPECT_EQ(run({"plan", spec(), "--layers", "2"}).code, 2);
}

TEST_F(Cli, PlanOfAJobThatDoesNotFitIsShownAndExitsAsSubmitDoes) {
  server_.state().plan = deep_plan(1);
  server_.state().plan.mutable_fit()->set_fits(false);
  server_.state().plan.mutable_fit()->set_message("the job needs 9 GiB, 1 GiB more");
  const Done done = run({"plan", spec()});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.out.find("1 GiB more"), std::string::npos) << done.out;
}

TEST_F(Cli, PlanShowsShardingPlansOnRequestAndMentionsThemWhenUseful) {
  server_.state().plan = deep_plan(1);
  EXPECT_EQ(run({"plan", spec()}).out.find("--sharding-plans"), std::string::npos);
  server_.state().plan.mutable_spec()->mutable_resources()->set_gpus(2);
  EXPECT_NE(run({"plan", spec()}).out.find("--sharding-plans compares this one with the others"),
            std::string::npos);
  EXPECT_FALSE(server_.state().plans.back().sharding_plans());

  v1::ShardingRow& row = *server_.state().plan.add_sharding_plans();
  row.add_shard(v1::Resources::OPTIMIZER);
  row.set_recompute(v1::Recipe::BLOCKS);
  row.set_accumulate_steps(4);
  row.set_verdict(v1::ShardingRow::CHOSEN);
  row.set_message("the fastest");
  row.set_bytes(1 << 30);
  row.set_sent_bytes(5 << 20);
  row.set_step_seconds(0.25);
  const Done done = run({"plan", spec(), "--sharding-plans"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "SHARD      RECOMPUTE  MICRO  MEMORY    STEP   SENT  WHY\n"
            "optimizer  blocks         4   1 GiB  250 ms  5 MiB  chosen: the fastest\n");
  EXPECT_TRUE(server_.state().plans.back().sharding_plans());
  const Done json = run({"plan", spec(), "--sharding-plans", "-o", "json"});
  EXPECT_NE(json.out.find("\"accumulate_steps\": 4"), std::string::npos) << json.out;
  const Done both = run({"plan", spec(), "--sharding-plans", "--dump", "memory"});
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--sharding-plans and --dump exclude each other"), std::string::npos)
      << both.err;
}

TEST_F(Cli, PlanComparesTheCpuWithGpusThatNobodyHas) {
  server_.state().plan = deep_plan(1);
  EXPECT_EQ(run({"plan", spec()}).out.find("ADVICE"), std::string::npos);
  EXPECT_EQ(server_.state().plans.back().compared_gpus_size(), 0);
  v1::GpuComparison& row = *server_.state().plan.add_gpu_comparisons();
  row.set_gpu("t4");
  row.set_verdict(v1::GpuComparison::PROBABLY_GPU);
  row.set_speedup_low(2);
  row.set_speedup_high(9);
  const Done done = run({"plan", spec(), "--gpu", "T4, RTX 3060"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("probably GPU"), std::string::npos) << done.out;
  const auto& asked = server_.state().plans.back().compared_gpus();
  EXPECT_EQ(std::vector<std::string>(asked.begin(), asked.end()),
            (std::vector<std::string>{"t4", "rtx-3060"}));
  const Done unknown = run({"plan", spec(), "--gpu", "t4,voodoo2"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("--gpu: 'voodoo2' is not known, expected one of all, t4, "),
            std::string::npos)
      << unknown.err;
  const Done both = run({"plan", spec(), "--gpu", "t4", "--dump", "memory"});
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--gpu excludes --sharding-plans and --dump"), std::string::npos)
      << both.err;
}

// The CPU is measured, so its time depends on the machine; the GPUs' verdicts exist nevertheless.
TEST_F(Cli, ThePlanOfFilesComparesThisCpuWithGpus) {
  server_.stop();
  const Done done = run({"plan", testing::source_path("examples/digits_cnn.yaml"), "--threads", "1",
                         "--gpu", "t4,h100", "-o", "json"});
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* words : {"\"gpu\": \"t4\"", "\"gpu\": \"h100\"", "\"verdict\": \"",
                            "\"speedup_low\": ", "speed measured with 1 thread"}) {
    EXPECT_NE(done.out.find(words), std::string::npos) << words << " in " << done.out;
  }
}

TEST_F(Cli, ShardingPlansOfSpecFilesAreComparedWithoutAServer) {
  server_.stop();
  const Done done = run({"plan", testing::source_path("examples/digits_cnn.yaml"), "--threads", "1",
                         "--sharding-plans"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("RECOMPUTE  MICRO"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("chosen (as written)"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("full "), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("A server would choose this"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find("Conv"), std::string::npos) << done.out;
}

TEST_F(Cli, PlanOfFilesNeedsNoServerAndSendsNothing) {
  server_.stop();
  const Done done =
      run({"plan", testing::source_path("examples/digits_cnn.yaml"), "--threads", "1"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("Conv"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("workspace"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("cpu with 1 thread"), std::string::npos) << done.out;
  const Done json = run({"plan", testing::source_path("examples/digits_cnn.yaml"), "-o", "json"});
  EXPECT_NE(json.out.find("\"workspace_measured\": true"), std::string::npos) << json.out;
}

TEST_F(Cli, ABadSpecNeedsNoServer) {
  server_.stop();
  const Done done =
      run({"submit", spec("dataset: {name: d}\nmodel: {lenet5: }\nrecipe: {epoch: 1}\n")});
  EXPECT_EQ(done.code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(done.err,
            "trainyard: " + (server_.folder() / "job.yaml").string() +
                ":3:10: recipe.epoch: unknown field, did you mean 'epochs'? [FIELD_UNKNOWN]\n");
}

TEST_F(Cli, SeveralProblemsHaveALineEach) {
  const Done done = run(
      {"submit", spec("dataset: {name: d}\nmodel: {lenet5: }\nrecipe: {epoch: 1, seeed: 2}\n")});
  EXPECT_EQ(done.code, 2);
  EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 3) << done.err;
  EXPECT_NE(done.err.find("job.yaml:3:20: recipe.seeed: unknown field, did you mean 'seed'?"),
            std::string::npos);
}

TEST_F(Cli, TheServersRefusalPointsIntoTheFile) {
  server_.state().submit_error = field_error("FIELD_OUT_OF_RANGE", "recipe.optimizer.learning_rate",
                                             "0 is out of range, expected above 0");
  const Done done = run({"submit", spec()});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("job.yaml:4:48: recipe.optimizer.learning_rate: 0 is out of range"),
            std::string::npos)
      << done.err;
}

struct CodeCase {
  ErrorCode code;
  int exit_code;
};
class CliCodes : public Cli, public ::testing::WithParamInterface<CodeCase> {};
TEST_P(CliCodes, EachKindOfFailureHasItsExitCode) {
  server_.state().submit_error = make_error(GetParam().code, "SOME_REASON", "a sentence");
  const Done done = run({"submit", spec()});
  EXPECT_EQ(done.code, GetParam().exit_code) << done.err;
  EXPECT_EQ(done.err, "trainyard: a sentence [SOME_REASON]\n");
}
INSTANTIATE_TEST_SUITE_P(
    All, CliCodes,
    ::testing::Values(CodeCase{ErrorCode::kInvalidArgument, 2}, CodeCase{ErrorCode::kOutOfRange, 2},
                      CodeCase{ErrorCode::kUnauthenticated, 3},
                      CodeCase{ErrorCode::kPermissionDenied, 3}, CodeCase{ErrorCode::kNotFound, 4},
                      CodeCase{ErrorCode::kAlreadyExists, 5}, CodeCase{ErrorCode::kAborted, 5},
                      CodeCase{ErrorCode::kFailedPrecondition, 5},
                      CodeCase{ErrorCode::kResourceExhausted, 6},
                      CodeCase{ErrorCode::kUnavailable, 7}, CodeCase{ErrorCode::kInternal, 1},
                      CodeCase{ErrorCode::kDataLoss, 1},
                      CodeCase{ErrorCode::kDeadlineExceeded, 124}));

TEST_F(Cli, AServerThatIsNotRunningIsExitCode7AndSaysHowToStartIt) {
  const Done done = run({"list", "--server", "unix:" + (server_.folder() / "none.sock").string()});
  EXPECT_EQ(done.code, 7);
  EXPECT_NE(done.err.find("[SERVER_NOT_RUNNING]"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("'trainyardd'"), std::string::npos) << done.err;
}

TEST_F(Cli, ErrorsAreObjectsForPrograms) {
  const Done done = run({"get", "nobody", "-o", "json"});
  EXPECT_EQ(done.code, 4);
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(done.err.substr(0, 60),
            "{\"error\":{\"code\":\"NOT_FOUND\",\"reason\":\"JOB_NOT_FOUND\",\"messa");
}

TEST_F(Cli, ListReadsAllPages) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 5);
  add_job(server_.state(), "digits-2", v1::QUEUED, 0);
  add_job(server_.state(), "digits-3", v1::FAILED, 0);
  server_.state().jobs["projects/default/jobs/digits-2"].set_message("waits for \x1b[31m a device");
  const Done names = run({"list", "-o", "name"});
  EXPECT_EQ(names.out, "digits-1\ndigits-2\ndigits-3\n");
  const Done table = run({"list"});
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 4) << table.out;
  EXPECT_NE(table.out.find("waits for \\x1b[31m a device"), std::string::npos) << table.out;
  EXPECT_EQ(run({"list", "--limit", "2", "-o", "name"}).out, "digits-1\ndigits-2\n");
  EXPECT_EQ(run({"list", "--state", "sleeping"}).code, 2);
  EXPECT_NE(run({"list", "-o", "json"}).out.find("\"name\": \"projects/default/jobs/digits-2\""),
            std::string::npos);
}

TEST_F(Cli, WhatAProgramReadsIsWholeUnlessALimitIsGiven) {
  constexpr int kJobs = 120;  // more than a terminal shows
  for (int i = 0; i < kJobs; ++i) {
    add_job(server_.state(), "job-" + std::to_string(1000 + i), v1::QUEUED, 0);
  }
  const auto lines = [&](const std::vector<std::string>& arguments) {
    const Done done = run(arguments);
    EXPECT_EQ(done.code, 0) << done.err;
    return std::count(done.out.begin(), done.out.end(), '\n');
  };
  EXPECT_EQ(lines({"list", "-o", "name"}), kJobs);
  EXPECT_EQ(lines({"list"}), kJobs + 1) << "a header, and all jobs, since this is no terminal";
  EXPECT_EQ(lines({"list", "--limit", "7", "-o", "name"}), 7);
  const Done json = run({"list", "-o", "json"});
  EXPECT_NE(json.out.find("job-1119"), std::string::npos);
  EXPECT_NE(json.out.find("\"next_page_token\": \"\""), std::string::npos)
      << "no option takes a token";
  EXPECT_EQ(run({"list", "--limit", "0"}).code, 2);
}

TEST_F(Cli, ListAsksTheServerForLabels) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 5);
  ASSERT_EQ(run({"list", "--label", "team=vision", "--label", "run=a=b"}).code, 0);
  const v1::ListJobsRequest& asked = server_.state().lists.back();
  EXPECT_EQ(asked.labels_size(), 2);
  EXPECT_EQ(asked.labels().at("team"), "vision");
  EXPECT_EQ(asked.labels().at("run"), "a=b");
  EXPECT_EQ(run({"list", "--label", "team"}).code, 2);
  const Done twice = run({"list", "--label", "team=vision", "--label", "team=speech"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find("'team' is given twice"), std::string::npos) << twice.err;
}

TEST_F(Cli, WaitExitsWithTheJobsOutcome) {
  add_job(server_.state(), "good-1", v1::SUCCEEDED, 5);
  add_job(server_.state(), "bad-1", v1::FAILED, 5);
  add_job(server_.state(), "gone-1", v1::CANCELLED, 5);
  add_job(server_.state(), "busy-1", v1::RUNNING, 5);
  EXPECT_EQ(run({"wait", "good-1"}).code, 0);
  v1::Job& bad_job = server_.state().jobs["projects/default/jobs/bad-1"];
  bad_job.set_reason("LOSS_NOT_FINITE");
  bad_job.set_message("the loss of step 3 is inf");
  const Done bad = run({"wait", "bad-1"});
  EXPECT_EQ(bad.code, 1);
  EXPECT_EQ(bad.err, "bad-1 is FAILED: the loss of step 3 is inf [LOSS_NOT_FINITE]\n");
  EXPECT_EQ(run({"wait", "projects/default/jobs/gone-1"}).code, 8);
  const Done slow = run({"wait", "busy-1", "--timeout", "0.3"});
  EXPECT_EQ(slow.code, 124);
  EXPECT_NE(slow.err.find("WAIT_TIMEOUT"), std::string::npos) << slow.err;
}

TEST_F(Cli, WaitReportsTheEndOfAJobThatWasDeletedMeanwhile) {
  add_job(server_.state(), "bad-1", v1::FAILED, 5);
  v1::Job& job = server_.state().jobs["projects/default/jobs/bad-1"];
  job.set_state(v1::RUNNING);  // while wait starts; later calls do not find the job
  job.set_newest_seq(4);
  server_.state().gets_max = 1;
  const Done done = run({"wait", "bad-1"});
  EXPECT_EQ(done.code, 1) << done.err;
  EXPECT_EQ(done.err, "");
}

TEST_F(Cli, WatchWritesLinesIntoAPipe) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 30);
  const Done done = run({"watch", "digits-1"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("RUNNING on cpu\n"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("  20%  step 20/100  epoch 2/10  64 samples/s  ETA 80 s  loss 0.05\n"),
            std::string::npos)
      << done.out;
  EXPECT_NE(done.out.find("careful \\x1b[2J now\n"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("SUCCEEDED after 29 s"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(done.out.find('\r'), std::string::npos);
}

TEST_F(Cli, WatchPrintsTheStreamAsJsonLines) {
  add_job(server_.state(), "digits-1", v1::FAILED, 10);
  const Done done = run({"watch", "digits-1", "-o", "jsonl", "--after", "4"});
  EXPECT_EQ(done.code, 1);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 6) << done.out;
  EXPECT_EQ(done.out.substr(0, 9), "{\"seq\":5,");
}

TEST_F(Cli, CtrlCDetachesAndSaysHowToCancel) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 5);
  const pid_t pid = start({"watch", "digits-1"});
  EXPECT_TRUE(eventually(
      [&] { return slurp(server_.folder() / "out").find("careful") != std::string::npos; }));
  ::kill(pid, SIGINT);
  const Done done = finish(pid);
  EXPECT_EQ(done.code, 130);
  EXPECT_NE(done.err.find("'trainyard cancel digits-1'"), std::string::npos) << done.err;
}

TEST_F(Cli, SubmitWatchKeepsTheNameAloneOnStdout) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 30);
  const Done done = run({"submit", spec(), "--watch"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "digits-1\n");
  EXPECT_NE(done.err.find("SUCCEEDED"), std::string::npos);
}

TEST_F(Cli, WatchEndsWithTheResultThatTheJobReports) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 30);
  // With keep_best, the result is that of an evaluation before the last one.
  auto& reported =
      *server_.state().jobs["projects/default/jobs/digits-1"].mutable_progress()->mutable_metrics();
  reported["val/accuracy"] = 0.8125;
  const Done done = run({"watch", "digits-1"});
  EXPECT_EQ(done.code, 0) << done.err;
  const size_t end = done.out.find("SUCCEEDED");
  ASSERT_NE(end, std::string::npos) << done.out;
  EXPECT_NE(done.out.find("val/accuracy 0.8125", end), std::string::npos) << done.out;
}

TEST_F(Cli, LogsShowLinesAndStatesUntilTheEnd) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 8);
  const Done done = run({"logs", "digits-1"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "2023-11-14 22:13:21  STATE  RUNNING on cpu\n2023-11-14 22:13:23  WARN   careful "
            "\\x1b[2J now\n");
}

TEST_F(Cli, ExplainShowsTheHistoryOfAJob) {
  add_job(server_.state(), "digits-1", v1::FAILED, 5);
  const Done done = run({"explain", "digits-1"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.find("digits-1\n  It failed at step 0 of 100"), 0u) << done.out;
  EXPECT_NE(done.out.find("What happened\n"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("What to do\n"), std::string::npos) << done.out;
  EXPECT_NE(run({"explain", "digits-1", "-o", "json"}).out.find("\"state\":\"FAILED\""),
            std::string::npos);
  EXPECT_EQ(run({"explain", "digits-2"}).code, 4);
}

TEST_F(Cli, CancelAndDelete) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 2);
  EXPECT_EQ(run({"cancel", "digits-1"}).code, 0);
  EXPECT_EQ(run({"cancel", "digits-1"}).code, 0);
  EXPECT_EQ(run({"delete", "digits-1"}).code, 2) << "nobody can answer the question";
  EXPECT_EQ(run({"delete", "digits-1", "--confirm", "digits-2"}).code, 2);
  EXPECT_EQ(run({"delete", "digits-1", "--yes"}).code, 5) << "it has not ended";
  server_.state().jobs["projects/default/jobs/digits-1"].set_state(v1::CANCELLED);
  EXPECT_EQ(run({"delete", "digits-1", "--confirm=digits-1"}).code, 0);
  EXPECT_EQ(run({"delete", "digits-1", "-y"}).code, 4);
}

TEST_F(Cli, PrioritizeReportsTheChangeAndTheExpectedStart) {
  add_job(server_.state(), "digits-1", v1::QUEUED, 0);
  const Done done = run({"prioritize", "digits-1", "--priority", "-5"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.err, "digits-1 has priority -5\n");
  EXPECT_EQ(server_.state().jobs["projects/default/jobs/digits-1"].priority(), -5);
  EXPECT_NE(run({"get", "digits-1"}).out.find("priority"), std::string::npos);
  const Done missing = run({"prioritize", "digits-1"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("--priority is missing, expected -100 to 100"), std::string::npos)
      << missing.err;
  EXPECT_EQ(run({"prioritize", "digits-1", "--priority", "101"}).code, 2);
  server_.state().jobs["projects/default/jobs/digits-1"].set_state(v1::RUNNING);
  EXPECT_EQ(run({"prioritize", "digits-1", "--priority", "5"}).err,
            "digits-1 has priority 5, if it returns to the queue\n");
}

TEST_F(Cli, PauseAndResumeSayWhatHappensToTheJob) {
  add_job(server_.state(), "digits-1", v1::QUEUED, 0);
  add_job(server_.state(), "digits-2", v1::RUNNING, 5);
  EXPECT_EQ(run({"pause", "digits-1", "digits-2"}).err,
            "digits-1 is paused\n"
            "digits-2 will pause; its worker finishes its step and saves a checkpoint first\n");
  server_.state().jobs["projects/default/jobs/digits-1"].set_state(v1::PAUSED);
  EXPECT_EQ(run({"resume", "digits-1", "digits-2"}).err,
            "digits-1 is back in the queue\ndigits-2 runs\n");
  const Done missing = run({"pause", "nobody"});
  EXPECT_NE(missing.code, 0);
  EXPECT_NE(missing.err.find("JOB_NOT_FOUND"), std::string::npos) << missing.err;
}

// The server copies a checkpoint before it replies. With the usual deadline, the client would
// report a failure although the fork of a large model was created.
TEST_F(Cli, ForkHasATimeoutOfAnHour) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 30);
  ASSERT_EQ(run({"fork", "digits-1"}).code, 0);
  const std::vector<double> deadlines_s = server_.state().fork_deadlines_s;
  ASSERT_EQ(deadlines_s.size(), 1u);
  EXPECT_GT(deadlines_s[0], 3000);
}

TEST_F(Cli, RetryAndForkPrintTheNewJobAndWhereItBegins) {
  add_job(server_.state(), "digits-1", v1::FAILED, 5);
  v1::JobSpec& spec = *server_.state().jobs["projects/default/jobs/digits-1"].mutable_spec();
  spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
  spec.mutable_model()->mutable_mlp()->add_hidden(8);
  spec.mutable_recipe()->set_epochs(3);
  const Done retried = run({"retry", "digits-1"});
  EXPECT_EQ(retried.code, 0) << retried.err;
  EXPECT_EQ(retried.out, "retried\n");
  EXPECT_FALSE(server_.state().retries.at(0).request_id().empty());
  ASSERT_EQ(run({"retry", "digits-1", "--from-start", "--name", "again"}).code, 0);
  EXPECT_TRUE(server_.state().retries.at(1).from_start());
  EXPECT_EQ(server_.state().retries.at(1).job_id(), "again");

  EXPECT_EQ(run({"fork", "digits-1@300", "--set", "recipe.epochs=5"}).out, "forked\n");
  const v1::ForkJobRequest fork = server_.state().forks.at(0);
  EXPECT_EQ(fork.name(), "projects/default/jobs/digits-1");
  EXPECT_EQ(fork.step(), 300);
  EXPECT_EQ(fork.spec().recipe().epochs(), 5);
  EXPECT_EQ(fork.spec().dataset().name(), spec.dataset().name());
  EXPECT_EQ(fork.spec().model().mlp().hidden(0), 8);
  ASSERT_EQ(run({"fork", "digits-1"}).code, 0);
  EXPECT_FALSE(server_.state().forks.at(1).has_spec());
  EXPECT_FALSE(server_.state().forks.at(1).has_step());
  for (const char* wrong : {"digits-1@", "digits-1@-3", "digits-1@0", "digits-1@9x"}) {
    const Done refused = run({"fork", wrong});
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_NE(refused.err.find("expected a whole number of at least 1"), std::string::npos);
  }
  EXPECT_EQ(run({"fork", "digits-1", "--set", "recipe.epoch=5"}).code, 2);
  EXPECT_EQ(run({"fork", "digits-1", "--set", "name=new"}).code, 2);
  EXPECT_EQ(server_.state().forks.size(), 2u) << "what is wrong is not sent";
}

TEST_F(Cli, CheckpointsAreListedInTheFormThatForkAccepts) {
  const Done list = run({"checkpoint", "list", "digits-1", "-o", "name"});
  EXPECT_EQ(list.out, "digits-1@1200\ndigits-1@900\n") << list.err;
  EXPECT_NE(run({"checkpoint", "list", "digits-1"}).out.find("3 MiB"), std::string::npos);
}

TEST_F(Cli, GetYamlPrintsASpecThatSubmitAccepts) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 5);
  v1::JobSpec& spec = *server_.state().jobs["projects/default/jobs/digits-1"].mutable_spec();
  spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
  spec.mutable_model()->mutable_lenet5();
  spec.mutable_recipe()->set_epochs(3);
  spec.mutable_recipe()->set_precision(v1::Recipe::TF32);
  const Done yaml = run({"get", "digits-1", "-o", "yaml"});
  EXPECT_EQ(yaml.out.find("# digits-1, SUCCEEDED"), 0u) << yaml.out;
  const Done again = run({"submit", "-", "--dry-run"}, yaml.out);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(server_.state().submits.back().spec().SerializeAsString(), spec.SerializeAsString());
}

TEST_F(Cli, PredictReadsRowsAndWritesEachFormat) {
  const Done table = run({"predict", "m-1", "--csv", "-"}, "1,2\n3,4\n");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(table.out,
            "ROW  PREDICTION  PROBABILITY  NEXT BEST\n  1  b                 75.0%  a (25.0%)\n"
            "  2  b                 75.0%  a (25.0%)\n");
  EXPECT_EQ(server_.state().predicts[0].csv(), "1,2\n3,4\n");
  EXPECT_EQ(run({"predict", "m-1", "--csv", "-", "-o", "csv"}, "1,2\n").out,
            "row,prediction,p_a,p_b\n1,b,0.25,0.75\n");
  EXPECT_EQ(run({"predict", "m-1", "--csv", "-", "-o", "name"}, "1,2\n").out, "b\n");
  EXPECT_EQ(run({"predict", "m-1"}).code, 2);
  EXPECT_EQ(run({"predict", "m-1", "--csv", "/no/such/file"}).code, 4);
  EXPECT_EQ(run({"list", "-o", "csv"}).code, 2);
}

// Only the most probable classes are sent, and the first of them is the prediction.
TEST_F(Cli, PredictShowsTheNextBestOfVeryManyClasses) {
  server_.state().many_classes = true;
  EXPECT_EQ(run({"predict", "m-1", "--csv", "-"}, "1,2\n").out,
            "ROW  PREDICTION  PROBABILITY  NEXT BEST\n  1  b                 75.0%  z (12.5%)\n");
  EXPECT_EQ(run({"predict", "m-1", "--csv", "-", "-o", "csv"}, "1,2\n").out,
            "row,prediction,probability\n1,b,0.75\n");
}

TEST_F(Cli, PredictSendsLongFilesInPiecesInOrder) {
  server_.state().models["projects/default/models/m-1"].mutable_schema()->add_columns()->set_name(
      "a");
  std::string rows = "a,b\n";
  while (rows.size() < 7'000'000) rows += "123456789,123456789\n";
  const Done done = run({"predict", "m-1", "--csv", "-", "-o", "name"}, rows);
  EXPECT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(server_.state().predicts.size(), 3u);
  std::string joined = "a,b\n";
  for (const v1::PredictRequest& request : server_.state().predicts) {
    EXPECT_LE(request.csv().size(), 3u << 20);
    EXPECT_EQ(request.csv().substr(0, 4), "a,b\n");
    joined += request.csv().substr(4);
  }
  EXPECT_EQ(joined, rows);
}

TEST_F(Cli, ExportWritesFilesAndNamesTheFolder) {
  server_.state().model_files = {{"model.json", "{}"}, {"model.safetensors", "weights"}};
  const std::string out = server_.folder() / "export";
  const Done done = run({"model", "export", "m-1", "--out", out});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, out + "\n");
  EXPECT_EQ(slurp(out + "/model.safetensors"), "weights");
}

TEST_F(Cli, ExportWritesMetricsForOtherTools) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 6);
  add_job(server_.state(), "digits-2", v1::RUNNING, 5);
  const std::string runs = server_.folder() / "runs";
  Done done = run({"metrics", "export", "digits-1", "digits-2", "--csv", "-"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "job,key,step,time,value\n"
            "digits-1,train/loss,2,1700000002,0.5\n"
            "digits-1,train/loss,4,1700000004,0.25\n"
            "digits-1,train/loss,5,1700000005,0.2\n"
            "digits-2,train/loss,2,1700000002,0.5\n"
            "digits-2,train/loss,4,1700000004,0.25\n"
            "digits-2,train/loss,5,1700000005,0.2\n");
  done = run({"metrics", "export", "digits-1", "--json", "-", "--tensorboard", runs});
  EXPECT_EQ(done.out, runs + "/digits-1\n" +
                          R"({"jobs":[{"job":"digits-1","metrics":{"train/loss":{"steps":[2,4,5],)"
                          R"("times":[1700000002.0,1700000004.0,1700000005.0],)"
                          R"("values":[0.5,0.25,0.2]}}}]})"
                          "\n");
  const std::string first = slurp(runs + "/digits-1/events.out.tfevents.0.trainyard");
  EXPECT_GT(first.size(), 40u + 3 * 30u);
  done = run({"metrics", "export", "digits-1", "--follow", "--tensorboard",
              runs});  // the job has ended, so the command does not wait
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(slurp(runs + "/digits-1/events.out.tfevents.0.trainyard"), first);
  done = run({"metrics", "export", "digits-1", "--csv", "-", "--key", "val/*"});
  EXPECT_EQ(done.out, "job,key,step,time,value\n");
  EXPECT_EQ(done.err, "warning: digits-1 has no metrics with these keys\n");
  EXPECT_EQ(run({"metrics", "export", "digits-1"}).code, 2);
  const std::string file = server_.folder() / "metrics.csv";
  EXPECT_EQ(run({"metrics", "export", "digits-1", "--csv", file}).out, file + "\n");
  done = run({"metrics", "export", "digits-1", "--csv", file});
  EXPECT_EQ(done.code, 5);
  EXPECT_NE(done.err.find("metrics.csv exists; --overwrite replaces it, --csv names another file"),
            std::string::npos)
      << done.err;
  EXPECT_EQ(run({"metrics", "export", "digits-1", "--csv", file, "--overwrite"}).code, 0);
  EXPECT_EQ(
      run({"metrics", "export", "digits-1", "digits-2", "--follow", "--tensorboard", runs}).code,
      2);
  EXPECT_EQ(run({"metrics", "export", "nobody-1", "--csv", "-"}).code, 4);
}

TEST_F(Cli, PlotDrawsJobsTogether) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 6);
  add_job(server_.state(), "digits-2", v1::RUNNING, 5);
  Done done = run({"plot", "digits-1", "digits-2", "--rows", "5"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(done.out.starts_with("loss\n* digits-1 train   o digits-2 train\n")) << done.out;
  done = run({"plot", "digits-1", "--png", "-"});
  EXPECT_TRUE(done.out.starts_with("\x89PNG\r\n"));
  done = run({"plot", "digits-1", "--png", "a.png", "--svg", "a.svg"});
  EXPECT_EQ(done.code, 2) << "one picture";
  done = run({"plot", "digits-1", "--svg", "-"});
  EXPECT_TRUE(done.out.starts_with("<svg ")) << done.out;
  const std::string file = server_.folder() / "curves.svg";
  EXPECT_EQ(run({"plot", "digits-1", "--svg", file}).out, file + "\n");
  done = run({"plot", "digits-1", "--svg", file});
  EXPECT_EQ(done.code, 5);
  EXPECT_NE(done.err.find("--overwrite replaces it, --svg names another file"), std::string::npos)
      << done.err;
  EXPECT_EQ(run({"plot", "digits-1", "--svg", file, "--overwrite"}).code, 0);
  done = run({"plot", "digits-1", "--metric", "val/*"});
  EXPECT_EQ(done.code, 4);
  EXPECT_NE(done.err.find("there are train/loss [METRIC_NOT_FOUND]"), std::string::npos);
  EXPECT_TRUE(run({"plot", "digits-1", "--rows", "5"}).out.starts_with("loss of digits-1\n"))
      << "the picture names its job";
  EXPECT_NE(run({"plot", "digits-1", "--svg", "-"}).out.find(">loss of digits-1<"),
            std::string::npos);
  EXPECT_EQ(run({"plot", "digits-1", "--smooth", "1"}).code, 2);
  EXPECT_EQ(run({"plot", "digits-1", "--rows", "1"}).code, 2);
}

TEST_F(Cli, HealthExitsWithZeroOrOne) {
  const Done good = run({"health"});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.out, "SERVING\n");
  server_.stop();
  server_.state().serving = false;
  server_.start();
  EXPECT_EQ(run({"health"}).code, 1);
  server_.stop();
  EXPECT_EQ(run({"health"}).code, 1) << "not 7: container health checks know 0 and 1";
}

TEST_F(Cli, ServerAndDevicesAndVersion) {
  const Done status = run({"server", "status"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("9.9.9"), std::string::npos);
  EXPECT_NE(status.out.find("warning: SQLite is \\x1b[31mold"), std::string::npos) << status.out;
  const std::string devices = run({"device", "list"}).out;
  EXPECT_NE(devices.find("no GPU here"), std::string::npos);
  EXPECT_NE(devices.find(
                "digits-1 (1 MiB planned, 0.5x as fast as forecast, at 25% of the "
                "device's bound, held back by 1 other job on the device), new-1, "
                "projects/vision/jobs/digits-1, held by another project's job (2 MiB planned)\n"),
            std::string::npos)
      << devices;
  EXPECT_NE(devices.find("The project vision may use only cpu and all GPUs.\n"), std::string::npos)
      << devices;
  const std::string json = run({"device", "list", "-o", "json"}).out;
  EXPECT_NE(json.find("forecast_share"), std::string::npos) << json;
  EXPECT_EQ(run({"version"}).out.substr(0, 10), "trainyard ");
  EXPECT_EQ(run({"--version"}).code, 0);
}

TEST_F(Cli, TheQueueShowsOtherProjectsJobsWithoutNames) {
  const std::string queue = run({"queue"}).out;
  EXPECT_NE(queue.find("1  digits-1"), std::string::npos) << queue;
  EXPECT_NE(queue.find("2  another project's job"), std::string::npos) << queue;
  EXPECT_NE(queue.find("3  projects/vision/jobs/digits-1"), std::string::npos) << queue;
}

TEST_F(Cli, UsageErrorsAreExitCode2AndSuggestTheNearestName) {
  const auto says = [&](const std::vector<std::string>& arguments, const std::string& words) {
    const Done done = run(arguments);
    EXPECT_EQ(done.code, 2) << done.out << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_NE(done.err.find(words), std::string::npos) << done.err;
  };
  says({"sumbit", "x.yaml"}, "did you mean 'trainyard submit'?");
  says({"dataset", "uplod"}, "did you mean 'trainyard dataset upload'?");
  says({"list", "--stat", "queued"}, "did you mean '--state'?");
  says({"models"}, "did you mean 'trainyard model list'?");
  says({"models", "export"}, "did you mean 'trainyard model export'?");
  says({"submit", "x.yaml", "--gpus", "2"}, "--set resources.gpus=2");
  says({"submit", "x.yaml", "--epochs", "2"}, "--set recipe.epochs=5");
  says({"dataset", "upload", "rows.csv", "--target", "y"}, "--csv rows.csv");
  says({"list", "--limit", "-5"}, "--limit: -5");
  says({"export", "x"}, "did you mean 'trainyard model export' or 'trainyard metrics export'?");
  says({"get"}, "JOB is required");
  says({"get", "a", "b"}, "unexpected argument 'b'");
  says({"list", "--limit", "many"}, "--limit");
  says({"list", "-o", "xml"}, "expected table");
  says({"dataset"}, "dataset upload");
  says({"completion", "tcsh"}, "expected bash, zsh or fish");
  says({"server", "info"}, "unknown command 'server info'");
  says({"daemon", "status"}, "did you mean 'trainyard server status'?");
  says({"evaluate", "m", "d"}, "did you mean 'trainyard model evaluate'?");
  says({"top"}, "did you mean 'trainyard device list'?");
  says({"job", "list"}, "did you mean 'trainyard list'?");
  says({"job", "status", "x"}, "did you mean 'trainyard get'?");
  says({"config"}, "'trainyard context' shows and changes the configuration file");
}

TEST_F(Cli, HelpGroupsTheCommandsAndFitsTheTerminal) {
  const std::string help = run({"help"}).out;
  size_t at = 0;
  for (const char* heading :
       {"\nData:\n", "\nJobs:\n", "\nMetrics:\n", "\nModels and predictions:\n",
        "\nDevices and the server:\n", "\nThis program:\n"}) {
    const size_t found = help.find(heading, at);
    ASSERT_NE(found, std::string::npos) << heading << help;
    at = found;
  }
  EXPECT_EQ(help.find("\nOthers:"), std::string::npos) << "each command has a group: " << help;
  for (const std::string name : {"submit", "list", "plan", "init", "fork", "plot", "predict",
                                 "chat", "health", "tutorial"}) {
    EXPECT_NE(help.find("\n  " + name + " "), std::string::npos) << name;
    const std::string page = run({"help", name}).out;
    const size_t examples_end = page.find("\nUsage: ");
    std::istringstream lines(page.substr(std::min(page.size(), examples_end)));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << name << ": " << line;
    }
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_NE(run({"cancel", "--help"}).out.find("Usage: trainyard cancel JOB... [options]"),
            std::string::npos);
  EXPECT_NE(run({"get", "--help"}).out.find("Usage: trainyard get JOB [options]"),
            std::string::npos);
  EXPECT_EQ(run({"get", "--help"}).out.find("--ca-file CA"), std::string::npos);
  std::string page = run({"get", "--help"}).out;
  std::replace(page.begin(), page.end(), '\n', ' ');  // the sentence is wrapped
  EXPECT_NE(page.find("'trainyard help options'"), std::string::npos);
  EXPECT_NE(run({"help", "options"}).out.find("--token-file FILE"), std::string::npos);
}

TEST_F(Cli, HelpBeginsWithExamples) {
  EXPECT_EQ(run({}).code, 0);
  const Done help = run({"help", "submit"});
  EXPECT_EQ(help.code, 0);
  EXPECT_LT(help.out.find("Examples:"), help.out.find("Usage:"));
  EXPECT_EQ(run({"submit", "--help"}).out, help.out);
  EXPECT_EQ(run({"dataset", "upload", "-h"}).code, 0);
  EXPECT_EQ(run({"--server", "unix:/x", "help"}).code, 2);
  EXPECT_EQ(run({"--server", server_.address(), "list"}).code, 0)
      << "global options may stand first";
}

/// Returns whether a program of this name is installed. Tests that need it are skipped otherwise.
bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

/// Returns the output of a shell command.
std::string printed_by(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string out;
  std::array<char, 4096> part;
  for (size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    out.append(part.data(), n);
  }
  return ::pclose(pipe) == 0 ? out : out + "[failed]";
}

class Completion : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    add_job(server_.state(), "digits-1", v1::QUEUED, 0);
    add_job(server_.state(), "digits-2", v1::QUEUED, 0);
    add_job(server_.state(), "other", v1::QUEUED, 0);
    fs::create_directory(server_.folder() / "here");
    fs::create_directory(server_.folder() / "here/runs");
    std::ofstream(server_.folder() / "here/spec one.yaml") << "name: one\n";
  }

  fs::path script(const std::string& shell) {
    const fs::path path = server_.folder() / ("completion." + shell);
    std::ofstream(path) << run({"completion", shell}).out;
    return path;
  }

  /// Runs `text` as a script of `shell` in the folder with the files and returns its output.
  std::string ask(const std::string& shell, const std::string& text) {
    const fs::path path = server_.folder() / ("ask." + shell);
    std::ofstream(path) << text;
    return printed_by("cd '" + (server_.folder() / "here").string() + "' && HOME='" +
                      server_.folder().string() +
                      "' TERM=xterm TRAINYARD_SERVER=" + server_.address() + " " + shell +
                      (shell == "zsh" ? " -f " : " ") + path.string() + " 2>&1");
  }
};

TEST_F(Completion, BashCompletesCommandsOptionsValuesFilesAndNames) {
  const std::string program = TRAINYARD_PROGRAM;
  const auto complete = [&](const std::string& words) {  // the last word is incomplete
    return ask("bash", "source " + script("bash").string() + "\nCOMP_WORDS=(" + program + " " +
                           words +
                           ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_trainyard\n"
                           "printf '%s;' \"${COMPREPLY[@]}\"\n");
  };
  EXPECT_EQ(complete("data"), "dataset;");
  EXPECT_EQ(complete("dataset up"), "upload;");
  EXPECT_EQ(complete("help wat"), "watch;");
  EXPECT_EQ(complete("list --memb"), "--members;");
  EXPECT_EQ(complete("list --plain"), "--plaintext;");
  EXPECT_EQ(complete("list --state ru"), "running;");
  EXPECT_EQ(complete("list --state = ru"), "running;") << "as bash splits --state=ru";
  EXPECT_EQ(complete("list --state queued -o js"), "json;jsonl;");
  EXPECT_EQ(complete("completion z"), "zsh;");
  EXPECT_EQ(complete("get dig"), "digits-1;digits-2;");
  EXPECT_EQ(complete("get digits-1 oth"), "other;");
  EXPECT_EQ(complete("cancel digits-1 other dig"), "digits-1;digits-2;");
  EXPECT_EQ(complete("submit sp"), "spec one.yaml;");
  EXPECT_EQ(complete("local run x.yaml --out r"), "runs;");
  EXPECT_EQ(complete("nonsense x"), ";");
}

TEST_F(Completion, ZshCompletesCommandsOptionsValuesFilesAndNames) {
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  // zsh completes only in its line editor, so the test runs one in a pseudoterminal.
  const auto complete = [&](const std::string& words) {
    return ask("zsh",
               "zmodload zsh/zpty\nzpty z zsh -f -i\n"
               "zpty -w z 'autoload -Uz compinit; compinit -u -D; source " +
                   script("zsh").string() +
                   "; compdef _trainyard " TRAINYARD_PROGRAM
                   "; bindkey \"^I\" complete-word; PROMPT=\"rea\"\"dy> \"'\n"
                   "zpty -r -m z line '*ready> *'\n"
                   "zpty -n -w z $'" TRAINYARD_PROGRAM " " +
                   words +
                   "\\t#end\\n'\n"
                   "zpty -r -m z line '*#end*'\nprint -r -- \"$line\"\nzpty -d z\n");
  };
  const auto offers = [&](const std::string& words, const std::string& completed) {
    const std::string shown = complete(words);
    EXPECT_NE(shown.find(completed), std::string::npos) << words << "\n" << shown;
  };
  offers("expl", "explain");
  offers("dataset up", "dataset upload");
  offers("list --memb", "--members");
  offers("list --state ru", "--state running");
  offers("get oth", "get other");
  offers("submit sp", "spec\\ one.yaml");
}

TEST_F(Completion, FishCompletesCommandsOptionsValuesFilesAndNames) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  const auto complete = [&](const std::string& words) {
    const std::string program = fs::path(TRAINYARD_PROGRAM).parent_path();
    return ask("fish", "set -x PATH " + program + " $PATH\nsource " + script("fish").string() +
                           "\ncomplete -C 'trainyard " + words +
                           "' | string replace -r '\\t.*' ''; true\n");
  };
  EXPECT_EQ(complete("expl"), "explain\n");
  EXPECT_EQ(complete("dataset up"), "upload\n");
  EXPECT_EQ(complete("help wat"), "watch\n");
  EXPECT_EQ(complete("list --memb"), "--members\n");
  EXPECT_EQ(complete("list --state ru"), "running\n");
  EXPECT_EQ(complete("get dig"), "digits-1\ndigits-2\n");
  EXPECT_EQ(complete("submit sp"), "spec one.yaml\n");
  EXPECT_EQ(complete("local run x.yaml --out ru"), "runs/\n");
}

TEST_F(Cli, ManualPagesAreWrittenForEachCommand) {
  const fs::path pages = server_.folder() / "man";
  EXPECT_EQ(run({"man", "--out", pages}).code, 0);
  EXPECT_TRUE(fs::exists(pages / "trainyard.1"));
  EXPECT_EQ(run({"man"}).out, slurp(pages / "trainyard.1"));
  EXPECT_EQ(run({"man", "dataset upload"}).out, slurp(pages / "trainyard-dataset-upload.1"));
  EXPECT_NE(slurp(pages / "trainyard-list.1").find("\\fB\\-\\-state\\fR"), std::string::npos);
  const Done unknown = run({"man", "nonsense"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("expected a command"), std::string::npos) << unknown.err;
}

TEST_F(Cli, ManualPagesHaveNoWarnings) {
  const fs::path pages = server_.folder() / "man";
  EXPECT_EQ(run({"man", "--out", pages}).code, 0);
  const auto check = [&](const std::string& program, const std::string& options,
                         const std::string& warnings) {
    if (!is_installed(program)) return false;
    for (const fs::directory_entry& page : fs::directory_iterator(pages)) {
      EXPECT_EQ(printed_by(program + options + page.path().string() + warnings), "");
    }
    return true;
  };
  const bool by_groff = check("groff", " -ww -man -Tutf8 ", " 2>&1 >/dev/null");
  const bool by_mandoc = check("mandoc", " -Tlint ", " 2>&1");
  if (!by_groff || !by_mandoc) {
    GTEST_SKIP() << (by_groff ? "" : "groff is not installed. ")
                 << (by_mandoc ? "" : "mandoc is not installed.");
  }
}

TEST_F(Cli, ATokenFromAFileIsSent) {
  add_job(server_.state(), "digits-1", v1::QUEUED, 0);
  const fs::path token = server_.folder() / "token";
  std::ofstream(token) << "my-secret-token\n";
  fs::permissions(token, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(run({"get", "digits-1", "--token-file", token}).code, 0);
  EXPECT_EQ(server_.state().authorizations.back(), "Bearer my-secret-token");
  fs::permissions(token, fs::perms::others_read, fs::perm_options::add);
  EXPECT_EQ(run({"get", "digits-1", "--token-file", token}).code, 3);
}

TEST_F(Cli, ForcedColourIsUsed) {
  add_job(server_.state(), "digits-1", v1::FAILED, 0);
  EXPECT_EQ(run({"list"}).out.find('\x1b'), std::string::npos);
  environment_ = {"FORCE_COLOR=1"};
  EXPECT_NE(run({"list"}).out.find("\x1b[31mFAILED"), std::string::npos);
  EXPECT_EQ(run({"list", "--no-color"}).out.find('\x1b'), std::string::npos);
}

TEST_F(Cli, LocalRunTrainsWithoutAServerAndResumes) {
  server_.stop();
  const std::string spec_path = testing::source_path("examples/digits_cnn.yaml");
  const std::string out = server_.folder() / "run";
  const std::vector<std::string> arguments = {
      "local",           "run",   spec_path, "--threads", "1",   "--set",
      "recipe.epochs=1", "--out", out,       "-o",        "json"};
  const Done done = run(arguments);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("\"steps_done\":22"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\"val/accuracy\":0."), std::string::npos) << done.out;
  EXPECT_TRUE(fs::exists(out + "/model/model.safetensors"));
  EXPECT_NE(run(arguments).err.find("resumed from step 22"), std::string::npos);
  EXPECT_EQ(run({"local", "run", spec()}).code, 2) << "a dataset name needs a server";
  const Done open = run({"local", "run", spec_path, "--set", "recipe.batch_size=auto"});
  EXPECT_EQ(open.code, 2);
  EXPECT_NE(open.err.find("only a server can choose auto, from the rates that it has measured, and "
                          "'local run' uses no server; write a number, such as 64"),
            std::string::npos)
      << open.err;
  const Done shapes =
      run({"local", "run", spec_path, "--set", "model.layers[0].conv.kernel_shape=50"});
  EXPECT_EQ(shapes.code, 2);
  EXPECT_NE(shapes.err.find("--set model.layers[0].conv.kernel_shape: model.layers[0]"),
            std::string::npos)
      << shapes.err;
}

TEST_F(Cli, WithoutTheEngineACommandNamesTheMissingProgramAndItsPackage) {
  server_.stop();
  move_away();
  const std::string spec_path = testing::source_path("examples/digits_cnn.yaml");
  const std::string missing = "trainyard: trainyard-local is neither in " +
                              fs::path(program_).parent_path().string() +
                              " nor in PATH. 'local run', 'local check', plans made here and PNG "
                              "files of curves need this program; the Debian package trainyard and "
                              "the tarball have it";
  const std::string reason = " [LOCAL_PROGRAM_MISSING]\n";
  for (const char* verb : {"run", "check"}) {
    std::vector<std::string> words = {"local", verb};
    if (verb == std::string("run")) words.push_back(spec_path);
    const Done done = run(words);
    EXPECT_EQ(done.code, 5);
    EXPECT_EQ(done.err, missing + reason);
  }
  EXPECT_EQ(run({"plan", spec_path}).err, missing + "; with --upload, the server plans" + reason);
  EXPECT_EQ(run({"plot", "digits-1", "--png", "x.png"}).err,
            missing + "; --svg writes the same picture as SVG" + reason);
  // Commands that need no engine work, and help and usage errors show one program name.
  EXPECT_EQ(run({"init", testing::source_path("examples/digits.csv.gz"), "--target", "c64", "--out",
                 server_.folder() / "digits.yaml", "-o", "name"})
                .err,
            "");
  EXPECT_NE(run({"local", "run", "--help"}).out.find("--tensorboard"), std::string::npos);
  EXPECT_EQ(run({"local", "run", spec_path, "--epochs", "2"}).code, 2);
}

TEST_F(Cli, TheEngineIsFoundInThePathAndReadsStandardInputFromItsBeginning) {
  server_.stop();
  move_away();
  environment_ = {"PATH=/nowhere:" + fs::path(TRAINYARD_PROGRAM).parent_path().string()};
  const std::string data = testing::source_path("examples/digits.csv.gz");
  std::string text = slurp(testing::source_path("examples/digits_cnn.yaml"));
  const std::string name = "path: digits.csv.gz";
  text.replace(text.find(name), name.size(), "path: " + data);
  const Done done = run({"plan", "-", "--threads", "1", "-o", "json"}, text);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("\"device\": \"devices/cpu\""), std::string::npos) << done.out;
}

TEST_F(Cli, TheEngineRefusesTheCommandLineOfAnotherVersion) {
  program_ = TRAINYARD_PROGRAM "-local";
  environment_ = {"TRAINYARD_CALLER_VERSION=0.0.1"};
  const Done done = run({"local", "check"});
  EXPECT_EQ(done.code, 5);
  EXPECT_TRUE(done.err.starts_with("trainyard: trainyard 0.0.1 found trainyard-local "))
      << done.err;
}

TEST_F(Cli, LocalRunShowsWhereTheTimeOfAStepGoes) {
  server_.stop();
  const std::string spec_path = testing::source_path("examples/digits_cnn.yaml");
  const std::string trace = server_.folder() / "step.json";
  Done done = run({"local", "run", spec_path, "--threads", "1", "--trace", trace});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* text : {"step:", " samples/s, ", "peak:", "NODES", "ConvGrad", "DIR", "SHARE"}) {
    EXPECT_NE(done.out.find(text), std::string::npos) << text << "\n" << done.out;
  }
  std::istringstream lines(done.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_TRUE(slurp(trace).starts_with("{\"displayTimeUnit\"")) << slurp(trace).substr(0, 200);
  done = run({"local", "run", spec_path, "--threads", "1", "--profile", "-o", "json"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(done.out.starts_with("{\"backend\":\"cpu\"")) << done.out;
  EXPECT_NE(done.out.find("\"direction\":\"backward\""), std::string::npos) << done.out;
  done = run({"local", "run", spec_path, "--profile", "--out", server_.folder() / "kept"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("remove --out"), std::string::npos) << done.err;
}

TEST_F(Cli, AnOnnxFileInASpecGivesModelAndInitialWeights) {
  server_.stop();
  const std::string example = testing::source_path("examples/digits_onnx.yaml");
  Done done = run({"plan", example, "-o", "json"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("\"source\": \"digits_0_to_4.onnx\""), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\"conv1.weight\""), std::string::npos) << done.out;
  // A second run of the same command finds its checkpoint, although it created the initial weights
  // file again.
  const std::string out = server_.folder() / "run";
  const std::vector<std::string> once = {"local",           "run",   example, "--set",
                                         "recipe.epochs=1", "--out", out};
  ASSERT_EQ(run(once).code, 0);
  EXPECT_NE(run(once).err.find("resumed from step 22"), std::string::npos);
  // Initial weights named in the recipe replace the file's, but the layers stay the file's.
  done = run({"plan", example, "--set",
              "recipe.initial_weights.path=" + out + "/model/model.safetensors", "-o", "json"});
  EXPECT_NE(done.out.find("/model/model.safetensors\""), std::string::npos) << done.err;
  done = run({"plan", example, "--set", "model.onnx=digits.csv.gz"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("--set model.onnx: not a valid ONNX file"), std::string::npos)
      << done.err;
}

TEST_F(Cli, PreviewWritesAPngWithoutAServer) {
  server_.stop();
  const std::string sheet = server_.folder() / "sheet.png";
  Done done = run({"dataset", "preview", testing::source_path("examples/digits_cnn.yaml"), "--out",
                   sheet, "--images", "3", "-o", "json"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("\"lines\":[{\"row\":\"0\",\"label\":\"0\"}"), std::string::npos)
      << done.out;
  EXPECT_TRUE(slurp(sheet).starts_with("\x89PNG\r\n"));
  const std::string text =
      "dataset: {path: " + testing::source_path("examples/digits.csv.gz") +
      ", csv: {header: false, target: c64, image: [1, 8, 8]}}\n"
      "model: {lenet5: }\nrecipe:\n  epochs: 1\n  optimizer: {learning_rate: 0.1}\n"
      "  augmentation:\n    - random_crop: {padding: 9}\n";
  EXPECT_EQ(run({"dataset", "preview", spec(text), "--out", sheet}).code, 5);  // the file exists
  done = run({"dataset", "preview", spec(text), "--out", sheet, "--overwrite"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("job.yaml:7:"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("expected 1..8"), std::string::npos) << done.err;
}

TEST_F(Cli, AClosedPipeIsNoCrash) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 30);
  const std::string command =
      std::string("TRAINYARD_SERVER=") + server_.address() + " " + TRAINYARD_PROGRAM +
      " watch digits-1 -o jsonl | head -1 >/dev/null; test ${PIPESTATUS[0]} -lt 2";
  EXPECT_EQ(std::system(("bash -c '" + command + "'").c_str()), 0);
}

TEST_F(Cli, GcShowsItemsWithBytesAndRemovesNothingUnlessConfirmed) {
  const auto asked = [&] {
    const std::scoped_lock lock(server_.state().mu);
    return server_.state().collections;
  };
  Done done = run({"server", "gc", "--dry-run"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "WHAT         NAME                   FREES  WHY\n"
            "checkpoints  digits-1               1 MiB  SUCCEEDED 9 days ago, its model is kept; "
            "another job still uses 2 MiB of it\n"
            "files        uploads/\\x1b[31mnotes  1 MiB  nothing refers to it\n"
            "2 MiB would be freed\n");
  ASSERT_EQ(asked().size(), 1u);
  EXPECT_TRUE(asked()[0].dry_run());
  EXPECT_EQ(asked()[0].older_than_seconds(), 7 * 24 * 3600);
  EXPECT_FALSE(asked()[0].unsuccessful_jobs());

  done = run({"server", "gc"});
  EXPECT_EQ(done.code, 2) << "nobody can be asked";
  EXPECT_NE(done.err.find("add --yes, or --dry-run"), std::string::npos) << done.err;
  EXPECT_EQ(asked().size(), 1u);

  done = run({"server", "gc", "--yes", "--older-than", "12h", "--unsuccessful-jobs"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("\n2 MiB freed\n"), std::string::npos) << done.out;
  EXPECT_NE(done.err.find("warning: jobs/\\x1b[31mx: it stays"), std::string::npos) << done.err;
  ASSERT_EQ(asked().size(), 2u);
  EXPECT_FALSE(asked()[1].dry_run());
  EXPECT_EQ(asked()[1].older_than_seconds(), 12 * 3600);
  EXPECT_TRUE(asked()[1].unsuccessful_jobs());

  done = run({"server", "gc", "--dry-run", "-o", "json"});
  EXPECT_NE(done.out.find("\"freed_bytes\": 2097152"), std::string::npos) << done.out;
  {
    const std::scoped_lock lock(server_.state().mu);
    server_.state().garbage = false;
  }
  EXPECT_EQ(run({"server", "gc", "--yes", "--older-than", "0"}).out, "nothing to remove\n");
  EXPECT_EQ(asked().back().older_than_seconds(), 0);
  for (const char* wrong : {"7", "d", "-1d", "7w", "7 d", "99999999999999999999d", ""}) {
    done = run({"server", "gc", "--dry-run", "--older-than", wrong});
    EXPECT_EQ(done.code, 2) << wrong;
    EXPECT_NE(done.err.find("--older-than"), std::string::npos) << done.err;
  }
}

TEST_F(Cli, TheAuditShowsPeopleAFewEntriesAndProgramsAll) {
  Done done = run({"server", "audit", "--caller", "ada", "--action", "CancelJob", "--limit", "2"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("ada\\x1b[31m  unix     CancelJob  digits-1  OK\n"), std::string::npos)
      << done.out;
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 3) << done.out;
  done = run({"server", "audit", "-o", "name"});
  EXPECT_EQ(std::ranges::count(done.out, '\n'), 60) << done.out;
  done = run({"server", "audit", "-o", "json", "--newer-than", "7d", "--older-than", "1d"});
  EXPECT_NE(done.out.find("\"caller\": \"ada\\u001b[31m\""), std::string::npos) << done.out;
  {
    const std::scoped_lock lock(server_.state().mu);
    const std::vector<v1::ListAuditRequest>& asked = server_.state().audits;
    ASSERT_GE(asked.size(), 2U);
    EXPECT_EQ(asked[0].caller(), "ada");
    EXPECT_EQ(asked[0].action(), "CancelJob");
    EXPECT_EQ(asked[0].page_size(), 2);
    EXPECT_FALSE(asked[0].has_since_time());
    EXPECT_EQ(asked.back().until_time().seconds() - asked.back().since_time().seconds(),
              6 * 24 * 3600);
  }
  for (const char* wrong : {"7", "d", "7 d"}) {
    done = run({"server", "audit", "--newer-than", wrong});
    EXPECT_EQ(done.code, 2) << wrong;
    EXPECT_NE(done.err.find("--newer-than"), std::string::npos) << done.err;
  }
}

TEST_F(Cli, UsageShowsHoursEnergyAndCostAndSaysWhatIsKnownInPart) {
  Done done = run({"usage"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "PERSON       DEVICE  DEVICE-HOURS  RESERVED  KWH  COST\n"
            "ada\\x1b[31m  gpu                2       0.5   1+     4\n"
            "bob, \"b\"     cpu            0.025\n");
  done = run({"usage", "--by", "day", "--by", "project", "--since", "90d", "--project", "vision",
              "--person", "ada", "-o", "csv"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "day,project,person,device_kind,device_seconds,reserved_device_seconds,energy_joules,"
            "metered_device_seconds,cost,priced_device_seconds\n"
            ",,ada\x1b[31m,gpu,7200.000000,1800.000000,3600000.000000,3600.000000,4.000000,"
            "7200.000000\n"
            ",,\"bob, \"\"b\"\"\",cpu,90.000000,0.000000,,0.000000,,0.000000\n");
  {
    const std::scoped_lock lock(server_.state().mu);
    const std::vector<v1::GetUsageRequest>& asked = server_.state().usages;
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].by_size(), 2) << "by person and device";
    EXPECT_FALSE(asked[0].has_since_time());
    EXPECT_TRUE(asked[0].project().empty());
    EXPECT_EQ(asked[1].project(), "projects/vision");
    EXPECT_EQ(asked[1].person(), "ada");
    EXPECT_EQ(asked[1].by(0), v1::GetUsageRequest::DAY);
    EXPECT_GT(asked[1].since_time().seconds(), 0);
  }
  done = run({"usage", "--by", "month"});
  EXPECT_EQ(done.code, 2);
  done = run({"usage", "--since", "soon"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("--since"), std::string::npos) << done.err;
}

TEST_F(Cli, QuotasAreListedSetAndRemoved) {
  Done done = run({"quota", "list"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out,
            "QUOTA         OF                       LIMIT   USED\n"
            "device_hours  ada\\x1b[31m                500   12.5\n"
            "stored_bytes  ada in project vision  200 GiB  1 GiB\n");
  done = run({"quota", "set", "stored_bytes", "500G", "--project", "vision", "--person", "ada"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "stored_bytes of ada in project vision: 500 GiB\n");
  done = run({"quota", "unset", "devices", "--person", "bob"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "devices of bob: no limit\n");
  {
    const std::scoped_lock lock(server_.state().mu);
    const std::vector<v1::SetQuotaRequest>& asked = server_.state().quotas;
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].kind(), v1::Quota::STORED_BYTES);
    EXPECT_EQ(asked[0].project(), "projects/vision");
    EXPECT_EQ(asked[0].limit(), int64_t{500} << 30);
    EXPECT_FALSE(asked[0].remove());
    EXPECT_TRUE(asked[1].remove());
    EXPECT_FALSE(asked[1].has_limit());
  }
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"quota", "set", "devices", "2"},
        {"quota", "set", "gpus", "2", "--person", "ada"},
        {"quota", "set", "devices", "-1", "--person", "ada"},
        {"quota", "set", "devices", "2G", "--person", "ada"},
        {"quota", "set", "stored_bytes", "2000000T", "--person", "ada"},
        {"quota", "set", "devices", "many", "--person", "ada"}}) {
    EXPECT_EQ(run(wrong).code, 2) << wrong[2];
  }
}

TEST_F(Cli, ABackupFileCanBeRestored) {
  const std::string file = server_.folder() / "backup.tar";
  const std::string state = server_.folder() / "restored";
  Done done = run({"server", "backup", file});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, file + "\n");
  EXPECT_NE(done.err.find("warning: model \\x1b[31mlost"), std::string::npos) << done.err;
  done = run({"server", "backup", file, "-o", "json"});
  EXPECT_NE(done.out.find("\"file_count\": 2"), std::string::npos) << done.out;
  done = run({"server", "restore", file, "--state-dir", state});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, state + "\n");
  EXPECT_EQ(slurp(state + "/uploads/one"), "content");
  done = run({"server", "restore", file, "--state-dir", state});
  EXPECT_EQ(done.code, 5) << done.err;
  EXPECT_NE(done.err.find("STATE_DIR_NOT_EMPTY"), std::string::npos) << done.err;
  EXPECT_EQ(run({"server", "backup", server_.folder()}).code, 2) << "a folder";
  EXPECT_EQ(run({"server", "restore", file}).code, 2) << "without --state-dir";
}

/// Adds an array "sweep" of three jobs in different states, and a job outside any array.
void add_sweep(FakeState& state) {
  v1::JobArray& array = state.arrays["projects/default/arrays/sweep"];
  array.set_name("projects/default/arrays/sweep");
  array.set_uid("u-9");
  array.set_size(3);
  array.set_owner("ada");
  array.mutable_spec()->mutable_dataset()->set_name("digits");
  const std::array states = {v1::SUCCEEDED, v1::RUNNING, v1::QUEUED};
  for (int i = 0; i < 3; ++i) {
    v1::JobArray::StateCount& count = *array.add_states();
    count.set_state(states[static_cast<size_t>(i)]);
    count.set_count(1);
    const std::string name = "projects/default/jobs/sweep-" + std::to_string(i);
    v1::Job& job = state.jobs[name];
    job.set_name(name);
    job.set_uid("u-1" + std::to_string(i));
    job.set_state(states[static_cast<size_t>(i)]);
    job.set_array(array.name());
    job.set_array_index(i);
    (*job.mutable_array_values())["recipe.optimizer.learning_rate"] = i == 0 ? "0.5" : "0.25";
    (*job.mutable_array_values())["model.mlp.hidden"] = "[4, " + std::to_string(i) + "]";
  }
  auto& metrics =
      *state.jobs["projects/default/jobs/sweep-0"].mutable_progress()->mutable_metrics();
  metrics["val/accuracy"] = 0.75;
  metrics["val/loss"] = 0.1;
  auto& better = *state.jobs["projects/default/jobs/sweep-1"].mutable_progress()->mutable_metrics();
  better["val/accuracy"] = 0.875;
  v1::Job& alone = state.jobs["projects/default/jobs/alone"];
  alone.set_name("projects/default/jobs/alone");
  alone.set_state(v1::QUEUED);
}

TEST_F(Cli, ASpecWithAnArraySubmitsOne) {
  const std::string text = slurp(spec()) +
                           "array:\n  grid:\n    recipe.optimizer.learning_rate: [0.1, 0.01]\n"
                           "    recipe.optimizer.type: [adam]\n";
  Done done = run({"submit", spec(text)});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "digits-1\n");
  ASSERT_EQ(server_.state().array_submits.size(), 1u);
  EXPECT_TRUE(server_.state().submits.empty());
  const v1::SubmitArrayRequest& request = server_.state().array_submits[0];
  EXPECT_EQ(request.array_id(), "digits-1");
  EXPECT_EQ(request.request_id().size(), 36u);
  EXPECT_EQ(request.spec().dataset().name(), "digits");
  const auto& grid = request.array().grid();
  EXPECT_EQ(grid.at("recipe.optimizer.learning_rate").values(1), "0.01");
  EXPECT_EQ(grid.at("recipe.optimizer.type").values(0), "\"adam\"");
  done = run({"submit", spec(text), "--dry-run"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("members:  3\n"), std::string::npos) << done.out;
  EXPECT_TRUE(server_.state().array_submits[1].validate_only());
  EXPECT_EQ(run({"submit", spec(text), "--watch"}).code, 2);
  done = run({"local", "run", spec(text)});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("job.yaml:5:1: array: 'local run' is for one job"), std::string::npos)
      << done.err;
}

TEST_F(Cli, AGridIsGivenByFlags) {
  Done done = run({"submit", spec(), "--grid", "recipe.optimizer.learning_rate=[0.1, 0.01]",
                   "--grid=model.layers[0].gemm.units=5"});
  EXPECT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(server_.state().array_submits.size(), 1u);
  const auto& grid = server_.state().array_submits[0].array().grid();
  EXPECT_EQ(grid.at("recipe.optimizer.learning_rate").values_size(), 2);
  EXPECT_EQ(grid.at("model.layers[0].gemm.units").values(0), "5");
  done = run({"submit", spec(), "--grid", "recipe.seed"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("is not a field with values, expected one such as"), std::string::npos);
  done = run({"submit", spec(), "--grid", "recipe.seed={from: 1}"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("--grid recipe.seed: array.grid.recipe.seed.from"), std::string::npos)
      << done.err;
}

TEST_F(Cli, ARefusedMemberIsShownWithTheLineOfItsValue) {
  const std::string text =
      slurp(spec()) + "array:\n  grid:\n    recipe.seed:\n      - 1\n      - x\n";
  server_.state().submit_error =
      make_error(ErrorCode::kInvalidArgument, "FIELD_TYPE_INVALID", "member 1: why");
  server_.state().submit_error.violations = {{"array.grid.recipe.seed[1]", "why"}};
  const Done done = run({"submit", spec(text)});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("job.yaml:9:9: member 1: why"), std::string::npos) << done.err;
}

TEST_F(Cli, ListHasALineForAnArrayInPlaceOfItsMembers) {
  add_sweep(server_.state());
  Done done = run({"list"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("ARRAY  MEMBERS  STATES"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("sweep        3  1 RUNNING, 1 QUEUED, 1 SUCCEEDED"), std::string::npos)
      << done.out;
  EXPECT_NE(done.out.find("\nalone"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find("sweep-0"), std::string::npos) << done.out;
  done = run({"list", "--members"});
  EXPECT_NE(done.out.find("sweep-2"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find("ARRAY"), std::string::npos) << done.out;
  done = run({"list", "--array", "sweep", "-o", "name"});
  EXPECT_EQ(done.out, "sweep-0\nsweep-1\nsweep-2\n");
  EXPECT_EQ(run({"list", "-o", "name"}).out, "alone\nsweep-0\nsweep-1\nsweep-2\n");
}

TEST_F(Cli, AnArrayIsPlottedWithTheValuesOfItsMembers) {
  add_sweep(server_.state());
  add_job(server_.state(), "curve", v1::RUNNING, 5);
  for (const char* member : {"sweep-0", "sweep-1", "sweep-2"}) {
    const std::string name = std::string("projects/default/jobs/") + member;
    server_.state().events[name] = server_.state().events["projects/default/jobs/curve"];
    server_.state().jobs[name].set_newest_seq(
        server_.state().jobs["projects/default/jobs/curve"].newest_seq());
  }
  const Done done = run({"plot", "sweep", "--svg", "-"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find(">sweep-0 hidden=[4, 0] learning_rate=0.5 train<"), std::string::npos)
      << done.out.substr(0, 2000);
}

TEST_F(Cli, AnArrayIsShownWithItsBestMembersFirst) {
  add_sweep(server_.state());
  Done done = run({"array", "get", "sweep"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("MEMBER   STATE      DONE  val/accuracy  hidden  learning_rate\n"
                          "sweep-1  RUNNING                 0.875  [4, 1]           0.25\n"
                          "sweep-0  SUCCEEDED                0.75  [4, 0]            0.5\n"
                          "sweep-2  QUEUED                         [4, 2]           0.25\n"),
            std::string::npos)
      << done.out;
  EXPECT_EQ(run({"get", "sweep"}).out, done.out) << "no job of that name";
  server_.state()
      .arrays.begin()
      ->second.mutable_spec()
      ->mutable_recipe()
      ->mutable_keep_best()
      ->set_metric("val/loss");
  done = run({"array", "get", "sweep", "--limit", "1"});
  EXPECT_NE(done.out.find("val/loss"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("sweep-0"), std::string::npos) << done.out;
  EXPECT_EQ(done.out.find("sweep-1"), std::string::npos) << done.out;
  EXPECT_NE(run({"array", "get", "sweep", "-o", "json"}).out.find("\"size\": 3"),
            std::string::npos);
  EXPECT_EQ(run({"array", "list", "-o", "name"}).out, "sweep\n");
  EXPECT_EQ(run({"array", "get", "none"}).code, run({"get", "none"}).code);
  done = run({"get", "sweep-1"});
  EXPECT_NE(
      done.out.find("sweep, number 1: model.mlp.hidden = [4, 1], recipe.optimizer.learning_rate "
                    "= 0.25"),
      std::string::npos)
      << done.out;
}

TEST_F(Cli, ArraysAreCancelledPausedResumedAndDeleted) {
  add_sweep(server_.state());
  for (const char* command : {"pause", "resume", "cancel"}) {
    const Done done = run({"array", command, "sweep"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.err.find("1 RUNNING, 1 QUEUED, 1 SUCCEEDED"), std::string::npos) << done.err;
    const Done job = run({command, "sweep"});
    EXPECT_EQ(job.code, 4) << job.err;
    EXPECT_NE(job.err.find("'trainyard array " + std::string(command) + " sweep'"),
              std::string::npos)
        << job.err;
  }
  EXPECT_NE(run({"watch", "sweep"}).err.find("'trainyard array get sweep'"), std::string::npos);
  EXPECT_NE(run({"explain", "sweep"}).err.find("'trainyard array get sweep'"), std::string::npos);
  EXPECT_NE(run({"array", "delete", "sweep"}).err.find("NOT_CONFIRMED"), std::string::npos);
  const Done deleted = run({"array", "delete", "sweep", "--yes"});
  EXPECT_EQ(deleted.code, 0) << deleted.err;
  EXPECT_EQ(server_.state().array_changes,
            (std::vector<std::string>{"PauseArray", "ResumeArray", "CancelArray", "DeleteArray"}));
}

TEST_F(Cli, WaitEndsWithTheLastMember) {
  add_sweep(server_.state());
  EXPECT_EQ(run({"wait", "sweep", "--timeout", "0.3"}).code, 124);
  v1::JobArray& array = server_.state().arrays.begin()->second;
  const pid_t waits = start({"wait", "sweep"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  {
    const std::scoped_lock lock(server_.state().mu);
    array.mutable_states(1)->set_state(v1::CANCELLED);
    array.mutable_states(2)->set_state(v1::SUCCEEDED);
    array.mutable_end_time()->set_seconds(1);
  }
  EXPECT_EQ(finish(waits).code, 8) << "one was cancelled";
  array.mutable_states(0)->set_state(v1::FAILED);
  EXPECT_EQ(run({"wait", "sweep"}).code, 1) << "one failed";
  const Done submitted =
      run({"submit", spec(), "--grid", "recipe.seed=[1, 2]", "--wait", "--timeout", "0.2"});
  EXPECT_EQ(submitted.code, 124) << submitted.err;
}

}  // namespace
}  // namespace trainyard::client
