#include "src/train/staged_rows.h"

#include <string>

#include "src/base/check.h"

namespace trainyard {

StagedRows::StagedRows(Backend& backend, const StagedSource& source)
    : backend_(backend),
      plan_(source.plan),
      memory_(backend, source.plan.bytes),
      layout_(copy_conversion(backend, memory_.get(), source.plan, source.transform, source.mean)) {
}

std::array<HostPiece, 2> StagedRows::pieces(std::span<const kernels::ResidentSample> samples,
                                            std::span<const std::byte> rows) const {
  TRAINYARD_CHECK(
      std::ssize(samples) == plan_.form.rows,
      std::to_string(samples.size()) + " samples, expected " + std::to_string(plan_.form.rows));
  TRAINYARD_CHECK(std::ssize(rows) == plan_.form.data_bytes(),
                  "rows of " + std::to_string(rows.size()) + " bytes, expected " +
                      std::to_string(plan_.form.data_bytes()));
  return {HostPiece{memory_.get(), rows.data(), std::ssize(rows)},
          HostPiece{memory_.get() + plan_.samples_at, samples.data(),
                    std::ssize(std::as_bytes(samples))}};
}

void StagedRows::gather(void* input, void* target) {
  const auto* const samples =
      reinterpret_cast<const kernels::ResidentSample*>(memory_.get() + plan_.samples_at);
  backend_.gather_rows(layout_, samples, plan_.form.rows, input, target, {});
}

}  // namespace trainyard
