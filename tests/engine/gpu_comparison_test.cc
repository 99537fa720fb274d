// Catches: advice that sends a small job to an expensive GPU or a large one to the CPU, advice that
// claims more than assumed rates can tell, and a GPU that is named but not understood.
#include "src/planning/gpu_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/planning/job_plan.h"

namespace trainyard {
namespace {

constexpr DeviceTraits kOnGpu = {kCudaAlignment, Processor::kGpu};
constexpr DeviceTraits kOnCpu = {kHostAlignment, Processor::kCpu};

struct ComparedJob {
  ModelSpec model;
  Recipe recipe;
  DatasetSchema schema;
};

ComparedJob table_job(int64_t columns, int64_t rows, std::vector<int64_t> hidden, int64_t epochs) {
  ComparedJob job;
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::move(hidden));
  job.recipe.epochs = epochs;
  job.recipe.precision = Precision::kTf32;
  job.schema.columns.resize(static_cast<size_t>(columns));
  job.schema.target.classes = {"a", "b", "c"};
  job.schema.train_rows = rows;
  return job;
}

ComparedJob image_job(const std::string& preset, Shape image, int64_t rows, int64_t epochs,
                      int64_t batch_size, Precision precision) {
  ComparedJob job;
  job.model.preset = preset;
  job.recipe.epochs = epochs;
  job.recipe.batch_size = batch_size;
  job.recipe.precision = precision;
  job.schema.kind = DatasetSchema::Kind::kImage;
  job.schema.image = image;
  for (int i = 0; i < 10; ++i) job.schema.target.classes.push_back(std::to_string(i));
  job.schema.train_rows = rows;
  job.schema.test_rows = rows / 10;
  return job;
}

ComparedJob text_job(const std::string& size, int words, int64_t context, int64_t batch_size,
                     int64_t steps, Precision precision) {
  ComparedJob job;
  job.model.preset = "gpt2";
  job.model.parameters.set("size", size);
  job.recipe.steps = steps;
  job.recipe.batch_size = batch_size;
  job.recipe.context_length = context;
  job.recipe.precision = precision;
  job.recipe.optimizer = default_optimizer("adamw");
  job.schema.kind = DatasetSchema::Kind::kText;
  job.schema.text.tokenizer = TokenizerKind::kWord;
  for (int i = 1; i < words; ++i) job.schema.text.pieces.push_back("w" + std::to_string(i));
  job.schema.target.kind = TargetSchema::Kind::kNextToken;
  job.schema.train_rows = 10'000'000;
  job.schema.test_rows = 100'000;
  return job;
}

RunPlan plan_for(const ComparedJob& job, DeviceTraits traits) {
  return plan_run(job.model, job.recipe, job.schema, /*ranks=*/1, traits).value();
}

/// A server's CPU of 16 cores that reaches 600 GFLOP/s and 50 GB/s, forecast within 10 %.
CpuForecast forecast_on_cpu(const RunPlan& plan) {
  double step = 0;
  for (const auto& [node, count] : plan.work.step.items) {
    step += count * (2e-6 + std::max(node.flops / 600e9, node.bytes / 50e9));
  }
  const double total = 1 + step * static_cast<double>(plan.work.steps);
  return {{total, total / 1.1, total * 1.1}, "speed measured with 16 threads", 0};
}

std::vector<ComparedGpu> compared(const ComparedJob& job, const std::string& gpus,
                                  const GpuPrice& price = {}) {
  const auto known = find_known_gpus(gpus, "--gpu").value();
  return compare_gpus(known, plan_for(job, kOnGpu), forecast_on_cpu(plan_for(job, kOnCpu)), price);
}

/// C and G: certainly the CPU or the GPU; c and g: probably; -: it depends on what counts; x: the
/// job cannot run there.
char letter_of(const ComparedGpu& row) {
  if (!row.advice) return 'x';
  switch (row.advice->verdict) {
    case CostVerdict::kCpu:
      return 'C';
    case CostVerdict::kProbablyCpu:
      return 'c';
    case CostVerdict::kDepends:
      return '-';
    case CostVerdict::kProbablyGpu:
      return 'g';
    case CostVerdict::kGpu:
      return 'G';
  }
  return '?';
}

TEST(GpuComparison, AdviceByCostForJobsFromAToyToGpt2) {
  constexpr auto kTf32 = Precision::kTf32, kBf16 = Precision::kBf16;
  struct Row {
    const char* name;
    ComparedJob job;
    const char* advice;  // one letter for each GPU
  };
  constexpr const char* kGpus = "t4,rtx-3060,a10,l4,a100,h100";
  const Row kRows[] = {
      {"a table of 150 rows", table_job(4, 150, {32}, 100), "CCCCCC"},
      {"a table of 200,000 rows", table_job(64, 200'000, {256, 128}, 20), "cccccc"},
      {"LeNet-5, MNIST", image_job("lenet5", {1, 28, 28}, 60'000, 10, 64, kTf32), "--gggg"},
      {"ResNet-18, CIFAR", image_job("resnet18", {3, 32, 32}, 50'000, 30, 128, kTf32), "ggGGGG"},
      {"ResNet-50, ImageNet", image_job("resnet50", {3, 224, 224}, 1'281'167, 90, 64, kTf32),
       "ggGGGG"},
      {"ResNet-50 in bf16, batch 256",
       image_job("resnet50", {3, 224, 224}, 1'281'167, 90, 256, kBf16), "xGGGGG"},
      {"ViT-B", image_job("vit_base", {3, 224, 224}, 1'281'167, 90, 64, kBf16), "xGGGGG"},
      {"GPT-2 mini", text_job("mini", 65, 256, 32, 5'000, kTf32), "gGGGGG"},
      {"GPT-2 124M", text_job("small", 50'257, 1'024, 4, 10'000, kTf32), "gGGGGG"},
      {"GPT-2 124M in bf16, batch 16", text_job("small", 50'257, 1'024, 16, 10'000, kBf16),
       "xGGGGG"},
  };
  for (const Row& row : kRows) {
    std::string letters;
    for (const ComparedGpu& gpu : compared(row.job, kGpus)) letters += letter_of(gpu);
    EXPECT_EQ(letters, row.advice) << row.name;
  }
}

TEST(GpuComparison, RangesOfAssumedRatesAreWideAndContainTheLikelyTime) {
  const ComparedJob job = image_job("resnet18", {3, 32, 32}, 50'000, 30, 128, Precision::kTf32);
  for (const ComparedGpu& row : compared(job, "all")) {
    const TimeRange& step = row.forecast.step;
    EXPECT_LT(step.low, step.seconds) << row.gpu->name;
    EXPECT_LT(step.seconds, step.high) << row.gpu->name;
    EXPECT_GT(step.high / step.low, 3) << row.gpu->name << ": nobody has measured it";
    EXPECT_LT(row.forecast.total.low, row.forecast.total.seconds);
    EXPECT_LT(row.forecast.total.seconds, row.forecast.total.high);
  }
}

TEST(GpuComparison, AFasterGpuIsNotForecastSlower) {
  const ComparedJob job = image_job("resnet50", {3, 224, 224}, 1'000'000, 1, 64, Precision::kTf32);
  const std::vector<ComparedGpu> rows = compared(job, "t4,a10,a100,h100,b200");
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(rows[i].forecast.step.seconds, rows[i - 1].forecast.step.seconds)
        << rows[i].gpu->name;
  }
}

// Tensor cores multiply TF32 only from compute capability 8.0 on, and 16 bits twice as fast.
TEST(GpuComparison, ThePrecisionCountsByWhatTheGpuHas) {
  const auto step_in = [](Precision precision, const char* gpu) {
    const ComparedJob job = image_job("resnet50", {3, 224, 224}, 1'000'000, 1, 64, precision);
    return compared(job, gpu).front().forecast.step.seconds;
  };
  EXPECT_EQ(step_in(Precision::kTf32, "t4"), step_in(Precision::kFp32, "t4"));
  EXPECT_LT(step_in(Precision::kTf32, "a10"), step_in(Precision::kFp32, "a10"));
  EXPECT_LT(step_in(Precision::kFp16, "t4"), step_in(Precision::kTf32, "t4"));
  EXPECT_LT(step_in(Precision::kBf16, "h100"), step_in(Precision::kTf32, "h100"));
}

TEST(GpuComparison, WhatCannotRunThereSaysWhy) {
  const CpuForecast cpu;
  const ComparedGpu turing =
      compared(image_job("lenet5", {1, 28, 28}, 60'000, 1, 64, Precision::kBf16), "t4").front();
  EXPECT_EQ(turing.text(cpu),
            "Not there: bf16 needs compute capability 8.0 or later, and it has 7.5; fp16 and tf32 "
            "run there.");
  const ComparedJob large = text_job("small", 50'257, 1'024, 32, 100, Precision::kTf32);
  const ComparedGpu small = compared(large, "rtx-3060").front();
  EXPECT_EQ(small.text(cpu).find("Not there: the job needs at least "), 0U) << small.text(cpu);
  EXPECT_NE(small.text(cpu).find(" of memory, and it has 12 GiB."), std::string::npos);
  EXPECT_FALSE(small.advice.has_value());
}

TEST(GpuComparison, WithoutTheCpusTimeThereIsAForecastButNoAdvice) {
  const ComparedJob job = table_job(4, 150, {32}, 100);
  CpuForecast cpu;
  cpu.basis = "unknown: the speed has not been measured yet";
  const auto known = find_known_gpus("l4", "--gpu").value();
  const ComparedGpu row = compare_gpus(known, plan_for(job, kOnGpu), cpu, {}).front();
  EXPECT_GT(row.forecast.total.seconds, 0);
  EXPECT_FALSE(row.advice.has_value());
  EXPECT_EQ(row.text(cpu),
            "Not known: the CPU's time is unknown: the speed has not been measured yet.");
}

// A loader that is too slow limits every GPU alike, unless the rows are resident there.
TEST(GpuComparison, TheLoaderLimitsWhatDoesNotStayOnTheGpu) {
  const ComparedJob job = image_job("resnet50", {3, 224, 224}, 1'281'167, 90, 64, Precision::kBf16);
  const RunPlan plan = plan_for(job, kOnGpu);
  ASSERT_FALSE(plan.work.row.kind.empty());
  CpuForecast cpu = forecast_on_cpu(plan_for(job, kOnCpu));
  cpu.rows_per_second_possible = 64;
  const auto known = find_known_gpus("h100", "--gpu").value();
  const ComparedGpu row = compare_gpus(known, plan, cpu, {}).front();
  EXPECT_EQ(row.forecast.limited_by, Limit::kData);
  EXPECT_DOUBLE_EQ(row.forecast.step.seconds, 1);
}

TEST(CostAdvice, WeighsSpeedAgainstThePrice) {
  const auto verdict = [](double cpu_seconds, double gpu_seconds, double price) {
    const auto exactly = [](double s) { return TimeRange{s, s, s}; };
    return advise_by_cost(exactly(cpu_seconds), exactly(gpu_seconds), {price, price}).verdict;
  };
  EXPECT_EQ(verdict(100, 10, 2), CostVerdict::kGpu);
  EXPECT_EQ(verdict(100, 10, 11), CostVerdict::kDepends);
  EXPECT_EQ(verdict(100, 101, 1), CostVerdict::kCpu);
}

TEST(CostAdvice, SaysProbablyWhereTheRangesOverlap) {
  const TimeRange cpu = {100, 95, 105};
  const auto gpu = [](double likely, double low, double high) {
    return TimeRange{likely, low, high};
  };
  EXPECT_EQ(advise_by_cost(cpu, gpu(10, 5, 20), {}).verdict, CostVerdict::kGpu);
  EXPECT_EQ(advise_by_cost(cpu, gpu(20, 8, 60), {}).verdict, CostVerdict::kProbablyGpu);
  EXPECT_EQ(advise_by_cost(cpu, gpu(60, 20, 200), {}).verdict, CostVerdict::kDepends);
  EXPECT_EQ(advise_by_cost(cpu, gpu(150, 50, 300), {}).verdict, CostVerdict::kProbablyCpu);
  EXPECT_EQ(advise_by_cost(cpu, gpu(300, 150, 900), {}).verdict, CostVerdict::kCpu);
  const CostAdvice advice = advise_by_cost(cpu, gpu(20, 10, 40), {2, 3});
  EXPECT_DOUBLE_EQ(advice.speedup.likely, 5);
  EXPECT_NEAR(advice.speedup.low, 2.5, 0.05);
  EXPECT_NEAR(advice.speedup.high, 10, 0.2);
  EXPECT_LT(advice.cost.low, std::sqrt(2.0 * 3.0) / advice.speedup.high)
      << "the price is uncertain, too";
  EXPECT_GT(advice.cost.high, 1);
}

TEST(CostAdvice, RangesHaveTwoDigits) {
  EXPECT_EQ(ratio_range_text(0.1234, 0.9), "0.12 to 0.9");
  EXPECT_EQ(ratio_range_text(3.14, 21.7), "3.1 to 22");
  EXPECT_EQ(ratio_range_text(2.5, 2.5), "2.5");
}

TEST(KnownGpus, AreFoundByNameHoweverItIsWritten) {
  const auto found = find_known_gpus("RTX 3060,t4,T4", "--gpu").value();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]->name, "rtx-3060");
  EXPECT_EQ(found[1]->name, "t4");
  EXPECT_EQ(find_known_gpus("all", "--gpu").value().size(), known_gpus().size());
}

TEST(KnownGpus, AnUnknownOneIsRefusedWithThoseThatAreKnown) {
  for (const char* names : {"t4,voodoo2", "", "t4,"}) {
    const auto refused = find_known_gpus(names, "--gpu");
    ASSERT_FALSE(refused.ok()) << names;
    EXPECT_EQ(refused.error().reason, "GPU_UNKNOWN");
    EXPECT_NE(refused.error().message.find("expected one of all, t4, "), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("h100"), std::string::npos);
  }
  EXPECT_NE(find_known_gpus("voodoo2", "--gpu").error().message.find("--gpu: 'voodoo2'"),
            std::string::npos);
}

TEST(GpuComparison, IsBetweenOneGpuAndTheCpu) {
  JobToPlan job;
  EXPECT_TRUE(check_comparable(job, false, "--gpu").ok());
  EXPECT_EQ(check_comparable(job, true, "--gpu").error().reason, "GPU_COMPARISON_INVALID");
  job.gpus = 4;
  const Status refused = check_comparable(job, false, "--gpu");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "--gpu: the job is for 4 GPUs; the comparison is between one GPU and the CPU");
}

}  // namespace
}  // namespace trainyard
