#include "src/planning/gpu_comparison.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {
namespace {

/// The limit of attention in TF32 by shared memory, in FLOPs per cycle of a multiprocessor: a
/// product of 16 x 8 x 8 takes 2.5 cycles (kernels/cuda/tensor_attention.cu).
constexpr double kTf32AttentionFlops = 2 * 16 * 8 * 8 / 2.5;

/// Returns why the job cannot run on the GPU, as a clause; empty if it can.
std::string obstacle_of(const KnownGpu& gpu, Precision precision, int64_t bytes_needed) {
  if (precision == Precision::kBf16 && gpu.facts.major < 8) {
    return "bf16 needs compute capability 8.0 or later, and it has " +
           std::to_string(gpu.facts.major) + "." + std::to_string(gpu.facts.minor) +
           "; fp16 and tf32 run there";
  }
  if (bytes_needed <= gpu.memory_bytes) return "";
  return "the job needs at least " + human_bytes(bytes_needed) + " of memory, and it has " +
         human_bytes(gpu.memory_bytes);
}

}  // namespace

AssumedRates assumed_rates_of(const KnownGpu& gpu, Precision precision) {
  const DevicePeak peak = peak_of(gpu.facts);
  const bool is_half = precision == Precision::kBf16 || precision == Precision::kFp16;
  const double products = is_half                         ? peak.half_flops
                          : precision == Precision::kTf32 ? peak.tf32_flops
                                                          : 0;
  AssumedRates rates;
  rates.multiprocessors = gpu.facts.multiprocessors;
  rates.f32_flops = peak.f32_flops;
  rates.product_flops = products > 0 ? products : peak.f32_flops;
  rates.attention_flops = rates.product_flops;
  if (precision == Precision::kTf32 && products > 0) {
    const double cycles = gpu.facts.multiprocessors * gpu.facts.clock_hz;
    rates.attention_flops = std::min(products, kTf32AttentionFlops * cycles);
  }
  rates.memory_bytes = peak.bytes;
  return rates;
}

std::string ComparedGpu::text(const CpuForecast& cpu) const {
  if (!obstacle.empty()) return "Not there: " + obstacle + ".";
  if (!advice) return "Not known: the CPU's time is " + cpu.basis + ".";
  const std::string faster = ratio_range_text(advice->speedup.low, advice->speedup.high);
  const std::string share = ratio_range_text(advice->cost.low, advice->cost.high);
  const std::string facts =
      faster + " times as fast as the CPU, for " + share + " of the CPU's price.";
  switch (advice->verdict) {
    case CostVerdict::kGpu:
      return "Use the GPU: " + facts;
    case CostVerdict::kProbablyGpu:
      return "The GPU is probably cheaper: " + facts;
    case CostVerdict::kDepends:
      return "The GPU is faster, the CPU cheaper: " + facts;
    case CostVerdict::kProbablyCpu:
      return "The CPU is probably faster and cheaper: the GPU is " + facts;
    case CostVerdict::kCpu:
      return "Use the CPU: the GPU is " + facts;
  }
  return "";
}

Status check_comparable(const JobToPlan& job, bool is_for_cluster, const std::string& field) {
  const auto refuse = [&](const std::string& what) {
    return field_error("GPU_COMPARISON_INVALID", field,
                       what + "; the comparison is between one GPU and the CPU");
  };
  if (is_for_cluster) return refuse("the job is for a cluster");
  if (job.nodes > 1) return refuse("the job is for " + std::to_string(job.nodes) + " nodes");
  if (job.gpus > 1) return refuse("the job is for " + std::to_string(job.gpus) + " GPUs");
  return {};
}

std::vector<ComparedGpu> compare_gpus(std::span<const KnownGpu* const> gpus, const RunPlan& on_gpu,
                                      const CpuForecast& cpu, const GpuPrice& price) {
  std::vector<ComparedGpu> compared;
  for (const KnownGpu* const gpu : gpus) {
    ComparedGpu& row = compared.emplace_back();
    row.gpu = gpu;
    // A job whose rows do not fit on the GPU keeps them on the host.
    row.bytes_needed = on_gpu.memory.total() + kAssumedOverheadBytes;
    row.obstacle = obstacle_of(*gpu, on_gpu.precision, row.bytes_needed);
    if (!row.obstacle.empty()) continue;
    row.forecast = forecast_run(on_gpu.work, assumed_rates_of(*gpu, on_gpu.precision),
                                cpu.rows_per_second_possible);
    if (cpu.total.seconds > 0) row.advice = advise_by_cost(cpu.total, row.forecast.total, price);
  }
  return compared;
}

std::string comparison_basis(const CpuForecast& cpu, const GpuPrice& price, bool price_is_assumed) {
  std::string text =
      "The GPUs' times are assumed from their published rates, not measured, so the ranges are "
      "wide.";
  if (cpu.total.seconds > 0) text += " The CPU's time is forecast from " + cpu.basis + ".";
  const std::string hours = ratio_range_text(price.low, price.high) + " hours of the CPU";
  return text + (price_is_assumed
                     ? " An hour of a GPU is assumed to cost " + hours + "."
                     : " An hour of a GPU costs " + hours + " by the configured prices.");
}

}  // namespace trainyard
