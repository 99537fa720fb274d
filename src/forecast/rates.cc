#include "src/forecast/rates.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr int64_t kVector = 16;  // floats in the widest vector registers
constexpr int kSweeps = 400;     // most sweeps of coordinate descent, which may converge earlier
constexpr double kNear = 0.8;   // distance of log sizes at which a sample's weight has faded to 0.6
constexpr double kPrior = 0.2;  // weight of the uncorrected sum; a sample at distance 0 has 1
constexpr double kSpreadLeast = 0.03;  // standard deviation of log time at a measured size

double padded(double size) {
  return std::ceil(size / static_cast<double>(kVector)) * static_cast<double>(kVector);
}

RateModel::Terms terms_of(const NodeWorkload& w) {
  RateModel::Terms terms = {w.serial, w.flops, w.bytes, w.far_bytes, w.memory_bytes, 0, 0, 0, 0};
  if (w.m > 0) {
    terms[5] = w.m * w.n;
    terms[6] = w.m * w.k;
    terms[7] = w.n * w.k;
    terms[8] = w.flops * (padded(w.n) / w.n - 1);
  }
  return terms;
}

std::array<double, 4> sizes_of(const NodeWorkload& w) {
  const auto size = [](double value) { return std::log(1 + value); };
  if (w.m > 0) return {size(w.m), size(w.n), size(w.k), 2 * w.far_bytes / std::max(1.0, w.bytes)};
  return {size(w.bytes), size(w.flops / w.serial), size(w.serial),
          2 * w.far_bytes / std::max(1.0, w.bytes)};
}

double sum(const RateModel::Terms& factors, const RateModel::Terms& terms) {
  double total = 0;
  for (size_t i = 0; i < factors.size(); ++i) total += factors[i] * terms[i];
  return total;
}

/// Finds the nonnegative factors that minimize the sum of squares of (fitted / measured - 1), by
/// coordinate descent.
RateModel::Terms least_squares(const std::vector<const RateSample*>& samples) {
  std::vector<RateModel::Terms> rows;
  RateModel::Terms scale{};
  for (const RateSample* sample : samples) {
    RateModel::Terms& row = rows.emplace_back(terms_of(sample->node));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] /= sample->seconds;
      scale[i] += row[i] * row[i];
    }
  }
  RateModel::Terms factors{};
  std::vector<double> rest(rows.size(), 1);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (scale[i] <= 0) continue;
      double slope = 0;
      for (size_t r = 0; r < rows.size(); ++r) slope += rows[r][i] * rest[r];
      const double next = std::max(0.0, factors[i] + slope / scale[i]);
      const double step = next - factors[i];
      if (step == 0) continue;
      factors[i] = next;
      for (size_t r = 0; r < rows.size(); ++r) rest[r] -= step * rows[r][i];
      moved = std::max(moved, std::abs(step) * std::sqrt(scale[i]));
    }
    if (moved < 1e-6) break;
  }
  return factors;
}

bool is_pseudo(std::string_view op) { return op.starts_with('('); }

/// Returns true for a node whose time is mainly that of moving its bytes, since it computes little
/// with each of them. (A view, which moves no bytes, has an op of its own: kViewOp.)
bool only_moves(const NodeWorkload& w) {
  constexpr double kFlopsPerByteMax = 10;
  return w.m == 0 && w.flops <= kFlopsPerByteMax * w.bytes && !is_pseudo(w.op);
}

NodeWorkload without_flops(NodeWorkload node) {
  node.flops = 0;
  return node;
}

Error invalid(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "RATES_INVALID", "rates: " + what);
}

}  // namespace

std::string to_json_text(const DeviceRates& rates) {
  nlohmann::ordered_json json = {{"prepare_seconds", rates.prepare_seconds},
                                 {"process_seconds", rates.process_seconds},
                                 {"measure_seconds", rates.measure_seconds},
                                 {"watts", rates.watts},
                                 {"samples", nlohmann::ordered_json::array()}};
  for (const RateSample& s : rates.samples) {
    const NodeWorkload& w = s.node;
    json["samples"].push_back(
        {w.op, w.flops, w.bytes, w.far_bytes, w.memory_bytes, w.m, w.n, w.k, w.serial, s.seconds});
  }
  return json.dump();
}

Result<DeviceRates> parse_rates(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("samples") || !json["samples"].is_array()) {
    return invalid("expected an object with samples");
  }
  const auto is_amount = [](const nlohmann::json& value) {
    return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
  };
  DeviceRates rates;
  for (const auto& [key, to] :
       {std::pair("prepare_seconds", &rates.prepare_seconds),
        std::pair("process_seconds", &rates.process_seconds),
        std::pair("measure_seconds", &rates.measure_seconds), std::pair("watts", &rates.watts)}) {
    if (!json.contains(key) || !is_amount(json[key]))
      return invalid(std::string(key) + " is wrong");
    *to = json[key].get<double>();
  }
  for (const auto& row : json["samples"]) {
    if (!row.is_array() || row.size() != 10 || !row[0].is_string() ||
        !std::all_of(row.begin() + 1, row.end(), is_amount)) {
      return invalid("a sample is not an op and nine numbers from 0 on");
    }
    RateSample& s = rates.samples.emplace_back();
    s.node.op = row[0].get<std::string>();
    size_t i = 1;
    for (double* to : {&s.node.flops, &s.node.bytes, &s.node.far_bytes, &s.node.memory_bytes,
                       &s.node.m, &s.node.n, &s.node.k, &s.node.serial, &s.seconds}) {
      *to = row[i++].get<double>();
    }
    if (s.seconds <= 0 || s.node.serial < 1 || (s.node.m > 0 && (s.node.n < 1 || s.node.k < 1))) {
      return invalid("a sample of " + quoted_value(s.node.op) + " took no time or has no size");
    }
  }
  return rates;
}

RateModel::Fit RateModel::fit(const std::vector<const RateSample*>& samples) {
  Fit fit;
  fit.factors = least_squares(samples);
  for (const RateSample* s : samples) {
    const double fitted = sum(fit.factors, terms_of(s->node));
    if (fitted <= 0) continue;
    fit.rests.push_back({sizes_of(s->node), std::log(s->seconds / fitted)});
  }
  return fit;
}

RateModel::RateModel(DeviceRates rates) : rates_(std::move(rates)) {
  std::map<std::string, std::vector<const RateSample*>> by_op;
  std::list<RateSample> moves;
  for (const RateSample& s : rates_.samples) {
    by_op[s.node.op].push_back(&s);
    if (is_pseudo(s.node.op)) continue;
    flops_per_second_ = std::max(flops_per_second_, s.node.flops / s.seconds);
    if (only_moves(s.node)) {
      moves.push_back({without_flops(s.node), s.seconds});
      by_op[""].push_back(&moves.back());
    }
    // The bandwidth is taken from updates only, since they surely read or write each of their
    // bytes.
    if (!s.node.op.ends_with("Update")) continue;
    bytes_per_second_ = std::max(bytes_per_second_, s.node.memory_bytes / s.seconds);
  }
  for (const auto& [op, samples] : by_op) fits_.emplace(op, fit(samples));
}

std::optional<NodeTime> RateModel::time(const NodeWorkload& node) const {
  if (const auto own = fits_.find(node.op); own != fits_.end()) {
    // The fit gives no time if its only nonzero factors are for terms that are 0 for this node,
    // such as far_bytes.
    if (const std::optional<NodeTime> known = time(own->second, node)) return known;
  }
  const auto it = fits_.find("");
  if (it == fits_.end() || !only_moves(node)) return std::nullopt;
  return time(it->second, without_flops(node));
}

std::optional<NodeTime> RateModel::time(const Fit& fit, const NodeWorkload& node) {
  const Terms terms = terms_of(node);
  const double fitted = sum(fit.factors, terms);
  if (fitted <= 0) return std::nullopt;

  double weights = kPrior, ratios = 0, squares = 0;
  const std::array<double, 4> at = sizes_of(node);
  for (const Fit::Rest& rest : fit.rests) {
    double distance = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      distance += (at[i] - rest.at[i]) * (at[i] - rest.at[i]);
    }
    const double weight = std::exp(-distance / (2 * kNear * kNear));
    weights += weight;
    ratios += weight * rest.log_ratio;
    squares += rest.log_ratio * rest.log_ratio;
  }
  const double factor = std::exp(ratios / weights);
  NodeTime time;
  time.seconds = fitted * factor;
  time.launch = fit.factors[0] * terms[0] * factor;
  time.memory = (fit.factors[3] * terms[3] + fit.factors[4] * terms[4]) * factor;
  const double unknown = std::sqrt(kPrior / weights);  // 1 far from all measured sizes
  const double typical =
      fit.rests.empty() ? 0 : std::sqrt(squares / static_cast<double>(fit.rests.size()));
  time.spread = std::hypot(kSpreadLeast, typical * unknown);
  return time;
}

}  // namespace trainyard
