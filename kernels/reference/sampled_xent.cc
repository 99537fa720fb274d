#include "kernels/sampled_xent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace trainyard::kernels::reference {

template <typename T>
void sample_classes(const SampleClassesParams& p, const SampleClassesOperands<T>& o, Run<T>) {
  check(p, o);
  std::unordered_map<int64_t, int32_t> places;
  const auto add = [&](int64_t k) {
    const auto place = static_cast<int32_t>(places.size());
    if (places.emplace(k, place).second) o.classes[place] = static_cast<int32_t>(k);
  };
  int64_t draws = 0;
  while (std::ssize(places) < p.samples && draws < p.draws_max()) {
    add(p.candidates.draw(p.seed, p.stream, static_cast<uint64_t>(*o.step / p.micro_batches),
                          draws++));
  }
  for (int64_t k = 0; std::ssize(places) < p.samples; ++k) add(k);
  for (int64_t j = p.samples; o.continues_step() && j < p.columns() && o.kept[j] >= 0; ++j) {
    add(o.kept[j]);
  }
  for (int64_t m = 0; m < p.counted; ++m) {
    if (label_counts(o.counted[m], p.ignored)) add(o.counted[m]);
  }
  std::fill(o.classes + places.size(), o.classes + p.columns(), -1);
  if (o.kept != nullptr) std::copy_n(o.classes, p.columns(), o.kept);
  for (int64_t n = 0; n < p.rows; ++n) {
    o.position[n] = label_counts(o.label[n], p.ignored) ? places.at(o.label[n]) : -1;
  }
  for (int64_t j = 0; j < p.columns(); ++j) {
    const int32_t k = o.classes[j];
    o.log_expected[j] = k < 0 ? T(0) : static_cast<T>(p.candidates.log_expected(k, draws));
  }
}

namespace {

/// Returns the number of rows with a position.
int64_t count_of(const SampledXentParams& p, const int32_t* position) {
  return p.rows - std::count(position, position + p.rows, -1);
}
bool is_candidate(const SampledXentParams& p, int64_t j, int32_t position) {
  return position >= 0 && (j < p.samples || j == position);
}

}  // namespace

template <typename T>
void sampled_xent_forward(const SampledXentParams& p, const SampledXentOperands<T>& o, Run<T>) {
  check(p, o);
  double total = 0;
  for (int64_t n = 0; n < p.rows; ++n) {
    const T* z = o.z + n * p.columns;
    T* prob = o.prob + n * p.columns;
    const int32_t at = o.position[n];
    T max = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < p.columns; ++j) {
      const T a = z[j] - o.log_expected[j];
      if (is_candidate(p, j, at) && !(a <= max)) max = a;
    }
    T sum = T(0);
    const T label = at < 0 ? T(0) : z[at] - o.log_expected[at];
    for (int64_t j = 0; j < p.columns; ++j) {  // prob may be z
      prob[j] = is_candidate(p, j, at) ? std::exp(z[j] - o.log_expected[j] - max) : T(0);
      sum += prob[j];
    }
    if (at < 0) continue;
    for (int64_t j = 0; j < p.columns; ++j) prob[j] /= sum;
    total += static_cast<double>(max + std::log(sum) - label);
  }
  const int64_t count = count_of(p, o.position);
  *o.loss = count == 0 ? T(0) : static_cast<T>(total / static_cast<double>(count));
}

template <typename T>
void sampled_xent_backward(const SampledXentParams& p, const SampledXentGradOperands<T>& o,
                           Run<T>) {
  check(p, o);
  const int64_t count = count_of(p, o.position);
  const T scale = count == 0 ? T(0) : *o.dloss / static_cast<T>(count);
  for (int64_t n = 0; n < p.rows; ++n) {
    for (int64_t j = 0; j < p.columns; ++j) {
      const int64_t i = n * p.columns + j;
      const bool counts = is_candidate(p, j, o.position[n]);
      o.dz[i] = counts ? scale * (o.prob[i] - T(j == o.position[n] ? 1 : 0)) : T(0);
    }
  }
}

template <typename T>
void take_rows(const TableRows& d, const T* table, const int32_t* index, T* y, Run<T>) {
  check_rows("take_rows", d, table, index, y);
  for (int64_t r = 0; r < d.count; ++r) {
    for (int64_t c = 0; c < d.width; ++c) {
      y[r * d.width + c] = index[r] < 0 ? T(0) : table[index[r] * d.width + c];
    }
  }
}

template <typename T>
void put_rows(const TableRows& d, const T* y, const int32_t* index, T* table, Run<T>) {
  check_rows("put_rows", d, y, index, table);
  for (int64_t r = 0; r < d.count; ++r) {
    if (index[r] >= 0) std::copy_n(y + r * d.width, d.width, table + index[r] * d.width);
  }
}

#define TRAINYARD_INSTANTIATE(T)                                                                 \
  template void sample_classes<T>(const SampleClassesParams&, const SampleClassesOperands<T>&,   \
                                  Run<T>);                                                       \
  template void sampled_xent_forward<T>(const SampledXentParams&, const SampledXentOperands<T>&, \
                                        Run<T>);                                                 \
  template void sampled_xent_backward<T>(const SampledXentParams&,                               \
                                         const SampledXentGradOperands<T>&, Run<T>);             \
  template void take_rows<T>(const TableRows&, const T*, const int32_t*, T*, Run<T>);            \
  template void put_rows<T>(const TableRows&, const T*, const int32_t*, T*, Run<T>);
TRAINYARD_INSTANTIATE(float)
TRAINYARD_INSTANTIATE(double)
#undef TRAINYARD_INSTANTIATE

}  // namespace trainyard::kernels::reference
