#include "src/forecast/cost_advice.h"

#include <cmath>
#include <cstdio>

namespace trainyard {
namespace {

/// Returns a / b. The errors of both are independent, so their logarithms add up in squares.
RatioRange ratio_of(const RatioRange& a, const RatioRange& b) {
  const double likely = a.likely / b.likely;
  const double below = std::hypot(std::log(a.likely / a.low), std::log(b.high / b.likely));
  const double above = std::hypot(std::log(a.high / a.likely), std::log(b.likely / b.low));
  return {likely, likely * std::exp(-below), likely * std::exp(above)};
}

RatioRange as_ratio(const TimeRange& time) { return {time.seconds, time.low, time.high}; }

std::string number_text(double value) {
  char text[32];
  // Ranges of assumed rates deserve two digits.
  std::snprintf(text, sizeof text, value >= 9.95 ? "%.0f" : "%.2g", value);
  return text;
}

}  // namespace

std::string_view name_of(CostVerdict verdict) {
  switch (verdict) {
    case CostVerdict::kCpu:
      return "CPU";
    case CostVerdict::kProbablyCpu:
      return "probably CPU";
    case CostVerdict::kDepends:
      return "GPU faster, CPU cheaper";
    case CostVerdict::kProbablyGpu:
      return "probably GPU";
    case CostVerdict::kGpu:
      return "GPU";
  }
  return "";
}

CostAdvice advise_by_cost(const TimeRange& cpu, const TimeRange& gpu, const GpuPrice& price) {
  CostAdvice advice;
  advice.speedup = ratio_of(as_ratio(cpu), as_ratio(gpu));
  const RatioRange of_price = {std::sqrt(price.low * price.high), price.low, price.high};
  advice.cost = ratio_of(of_price, advice.speedup);
  if (advice.speedup.likely <= 1) {
    advice.verdict = advice.speedup.high <= 1 ? CostVerdict::kCpu : CostVerdict::kProbablyCpu;
  } else if (advice.cost.likely < 1) {
    advice.verdict = advice.cost.high < 1 ? CostVerdict::kGpu : CostVerdict::kProbablyGpu;
  }
  return advice;
}

std::string ratio_range_text(double low, double high) {
  const std::string from = number_text(low), to = number_text(high);
  return from == to ? from : from + " to " + to;
}

}  // namespace trainyard
