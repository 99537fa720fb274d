// tests/server/forecast_samples.h: a device whose speed is known, and a run on it.
#pragma once

#include <cstdint>

#include "src/forecast/forecast.h"
#include "src/forecast/rates.h"

namespace trainyard::server {

inline NodeWorkload product_of(double size) {
  NodeWorkload node;
  node.op = "Gemm";
  node.flops = node.bytes = size;
  return node;
}

/// Returns the rates of a device on which every product takes `seconds`.
inline DeviceRates product_rates(double seconds) {
  DeviceRates rates;
  for (const double size : {1e3, 1e4, 1e5}) rates.samples.push_back({product_of(size), seconds});
  return rates;
}

/// Returns a run of `steps` steps, each of which is one product.
inline RunWork work_of_products(int64_t steps) {
  RunWork work;
  work.step.items = {{product_of(1e4), 1}};
  work.step.digest = "graph";
  work.batch_size = 10;
  work.steps = steps;
  return work;
}

}  // namespace trainyard::server
