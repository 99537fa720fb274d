#include "client/cli/gpu_view.h"

#include "client/cli/forecast_view.h"
#include "client/cli/output.h"
#include "client/cli/table.h"
#include "src/base/text.h"
#include "src/forecast/cost_advice.h"

namespace trainyard::cli {
namespace {

Cell verdict_cell(v1::GpuComparison::Verdict verdict) {
  const auto cell = [](CostVerdict of, Style style) {
    return Cell(std::string(name_of(of)), style);
  };
  switch (verdict) {
    case v1::GpuComparison::CPU:
      return cell(CostVerdict::kCpu, Style::kPlain);
    case v1::GpuComparison::PROBABLY_CPU:
      return cell(CostVerdict::kProbablyCpu, Style::kPlain);
    case v1::GpuComparison::DEPENDS:
      return cell(CostVerdict::kDepends, Style::kNotice);
    case v1::GpuComparison::PROBABLY_GPU:
      return cell(CostVerdict::kProbablyGpu, Style::kGood);
    case v1::GpuComparison::GPU:
      return cell(CostVerdict::kGpu, Style::kGood);
    case v1::GpuComparison::IMPOSSIBLE:
      return {"not possible", Style::kBad};
    default:
      return {"unknown", Style::kDim};
  }
}

/// Returns "x to y", with each end as `text` writes it.
std::string ends_text(double low, double high, std::string (*text)(double)) {
  return high > 0 ? text(low) + " to " + text(high) : "";
}

std::string times_text(double low, double high) {
  return high > 0 ? ratio_range_text(low, high) + "x" : "";
}

}  // namespace

std::string render_gpu_comparisons(const v1::JobPlan& plan, bool colour, int width) {
  if (plan.gpu_comparisons().empty()) return "";
  Table table({{"GPU"},
               {"NEEDS", true},
               {"HAS", true},
               {"STEP", true},
               {"TOTAL TIME", true},
               {"SPEED", true},
               {"COST", true},
               {"ADVICE"}});
  std::string sentences;
  const auto add_sentence = [&](const std::string& text) {
    sentences += wrapped(safe_text(text), width) + "\n";
  };
  for (const v1::GpuComparison& row : plan.gpu_comparisons()) {
    table.add({row.gpu(), human_bytes(row.bytes_needed()), human_bytes(row.memory_bytes()),
               ends_text(row.step_seconds_low(), row.step_seconds_high(), step_text),
               ends_text(row.total_seconds_low(), row.total_seconds_high(), human_duration),
               times_text(row.speedup_low(), row.speedup_high()),
               times_text(row.cost_share_low(), row.cost_share_high()),
               verdict_cell(row.verdict())});
    const bool explains = row.verdict() == v1::GpuComparison::IMPOSSIBLE ||
                          row.verdict() == v1::GpuComparison::VERDICT_UNSPECIFIED;
    if (explains) add_sentence(row.gpu() + ": " + row.advice());
  }
  add_sentence("SPEED and COST are multiples of the CPU's. " + plan.gpu_comparisons_basis());
  return table.render(colour) + sentences;
}

}  // namespace trainyard::cli
