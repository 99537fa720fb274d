#include "kernels/sampled_xent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/places.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/soft_target.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

double rows_that_count(const SampledXentParams& p, const int32_t* position) {
  return static_cast<double>(p.rows - std::count(position, position + p.rows, -1));
}

}  // namespace

int64_t sample_classes_workspace_bytes(const SampleClassesParams& p) {
  return Places::bytes_for(p.columns());
}

void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<float>& o, Run run) {
  check(p, o);
  Places places(p.columns(), workspace_of<int32_t>("sample_classes", run));
  const auto add = [&](int64_t k) {
    const auto key = static_cast<int32_t>(k);
    const int64_t at = places.count();
    if (places.add(key)) o.classes[at] = key;
  };
  const auto step = static_cast<uint64_t>(*o.step / p.micro_batches);
  int64_t draws = 0;
  while (places.count() < p.samples && draws < p.draws_max()) {
    add(p.candidates.draw(p.seed, p.stream, step, draws++));
  }
  for (int64_t k = 0; places.count() < p.samples; ++k) add(k);
  for (int64_t j = p.samples; o.continues_step() && j < p.columns() && o.kept[j] >= 0; ++j) {
    add(o.kept[j]);
  }
  for (int64_t m = 0; m < p.counted; ++m) {
    if (label_counts(o.counted[m], p.ignored)) add(o.counted[m]);
  }
  std::fill(o.classes + places.count(), o.classes + p.columns(), -1);
  if (o.kept != nullptr) std::copy_n(o.classes, p.columns(), o.kept);
  for (int64_t n = 0; n < p.rows; ++n) {
    o.position[n] = label_counts(o.label[n], p.ignored) ? places.of(o.label[n]) : -1;
  }
  run.team.parallel_for(p.columns(), 256, [&](int64_t begin, int64_t end) {  // about 100 ns each
    for (int64_t j = begin; j < end; ++j) {
      const int32_t k = o.classes[j];
      o.log_expected[j] = k < 0 ? 0 : static_cast<float>(p.candidates.log_expected(k, draws));
    }
  });
}

int64_t sampled_xent_workspace_bytes(const SampledXentParams& p) {
  return p.rows * static_cast<int64_t>(sizeof(double));
}

void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<float>& o,
                          Run run) {
  check(p, o);
  double* terms = workspace_of<double>("sampled_xent_forward", run);
  run.team.parallel_for(p.rows, grain_of(16 * p.columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* z = o.z + n * p.columns;
      float* prob = o.prob + n * p.columns;
      const int32_t at = o.position[n];
      terms[n] = 0;
      if (at < 0) {
        std::fill_n(prob, p.columns, 0.0f);
        continue;
      }
      const float label = z[at] - o.log_expected[at];  // read first, since prob may be z
      for (int64_t j = 0; j < p.samples; ++j) prob[j] = z[j] - o.log_expected[j];
      float sum = 0;
      float max = row_loops().softmax(p.samples, prob, prob, &sum);
      std::fill(prob + p.samples, prob + p.columns, 0.0f);
      if (at >= p.samples) {  // the label is a candidate in addition to the drawn classes
        const float largest = label > max || label != label ? label : max;
        const float drawn = sum * std::exp(max - largest), own = std::exp(label - largest);
        row_loops().scale(p.samples, drawn / (drawn + own), prob, prob);
        prob[at] = own / (drawn + own);
        max = largest;
        sum = drawn + own;
      }
      terms[n] = static_cast<double>(max - label) + static_cast<double>(std::log(sum));
    }
  });
  const double count = rows_that_count(p, o.position);
  *o.loss = static_cast<float>(count == 0 ? 0 : add_up(p.rows, terms) / count);
}

void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<float>& o,
                           Run run) {
  check(p, o);
  const double count = rows_that_count(p, o.position);
  const double scale = count == 0 ? 0 : static_cast<double>(*o.dloss) / count;
  run.team.parallel_for(p.rows, grain_of(p.columns), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* prob = o.prob + n * p.columns;
      float* dz = o.dz + n * p.columns;
      const int32_t at = o.position[n];
      if (at < 0) {
        std::fill_n(dz, p.columns, 0.0f);
        continue;
      }
      const float p_label = prob[at];  // read first, since dz may be prob
      row_loops().scale(p.samples, static_cast<float>(scale), prob, dz);
      std::fill(dz + p.samples, dz + p.columns, 0.0f);
      // Computed from the difference p - 1, since the difference of the two scaled values would
      // lose digits where p is near 1.
      dz[at] = static_cast<float>(scale * (static_cast<double>(p_label) - 1));
    }
  });
}

void take_rows(const TableRows& d, const float* table, const int32_t* index, float* y, Run run) {
  check_rows("take_rows", d, table, index, y);
  const auto bytes = static_cast<size_t>(d.width) * sizeof(float);
  run.team.parallel_for(d.count, grain_of(d.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* to = y + r * d.width;
      if (index[r] < 0) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, table + index[r] * d.width, bytes);
      }
    }
  });
}

void put_rows(const TableRows& d, const float* y, const int32_t* index, float* table, Run run) {
  check_rows("put_rows", d, y, index, table);
  const auto bytes = static_cast<size_t>(d.width) * sizeof(float);
  run.team.parallel_for(d.count, grain_of(d.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (index[r] >= 0) std::memcpy(table + index[r] * d.width, y + r * d.width, bytes);
    }
  });
}

}  // namespace trainyard::kernels::cpu
