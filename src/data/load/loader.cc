#include "src/data/load/loader.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <numeric>
#include <stop_token>
#include <thread>

#include "src/base/mutex.h"
#include "src/base/philox.h"
#include "src/data/load/packing.h"
#include "src/data/load/resident_rows.h"

namespace trainyard {

int64_t batches_per_epoch(int64_t rows, int64_t batch_size, bool drop_last) {
  const int64_t whole = rows / batch_size;
  return drop_last || rows % batch_size == 0 ? whole : whole + 1;
}

namespace {

void fill_documents(const Partition& partition, std::span<const int64_t> rows, Batch& batch) {
  TRAINYARD_CHECK(partition.packed != nullptr, "documents that are in no rows");
  const auto length = static_cast<size_t>(partition.packed->context_length);
  const size_t count = rows.size() * length;
  batch.tokens.resize(count);
  batch.positions.resize(count);
  batch.target_class.resize(count);
  for (size_t i = 0; i < rows.size(); ++i) {
    copy_packed_row(partition, rows[i], std::span(batch.tokens).subspan(i * length, length),
                    std::span(batch.positions).subspan(i * length, length),
                    std::span(batch.target_class).subspan(i * length, length));
  }
}

/// Returns each part's share of the counted targets, times the number of parts.
std::vector<float> shares_of_parts(std::span<const int32_t> targets, int64_t parts) {
  const size_t size = targets.size() / static_cast<size_t>(parts);
  std::vector<int64_t> counts;
  for (size_t at = 0; at < targets.size(); at += size) {
    counts.push_back(
        std::ranges::count_if(targets.subspan(at, size), [](int32_t t) { return t >= 0; }));
  }
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::vector<float> shares;
  for (const int64_t count : counts) {
    shares.push_back(all == 0 ? 1.0f
                              : static_cast<float>(static_cast<double>(count * parts) /
                                                   static_cast<double>(all)));
  }
  return shares;
}

}  // namespace

void fill_batch(const RowTransform& transform, const Partition& partition,
                std::span<const int64_t> rows, Batch& batch, const ImageEdit& edit) {
  const auto count = rows.size();
  const auto size = static_cast<size_t>(transform.input_size());
  batch.rows = std::ssize(rows);
  if (transform.documents()) return fill_documents(partition, rows, batch);
  const bool text = transform.text();
  const bool stream = transform.stream();
  batch.input.resize(text ? 0 : count * size);
  batch.tokens.resize(text ? count * size : 0);
  batch.target_class.resize(stream ? count * size : partition.target_class.empty() ? 0 : count);
  batch.target_numeric.resize(partition.target_numeric.empty() ? 0 : count);
  for (size_t i = 0; i < count; ++i) {
    TRAINYARD_DCHECK(rows[i] >= 0 && rows[i] < partition.rows, "row out of range");
    const auto row = static_cast<size_t>(rows[i]);
    if (stream) {
      transform.copy_tokens(partition, rows[i], batch.tokens.data() + i * size);
      transform.copy_tokens(partition, rows[i] + 1, batch.target_class.data() + i * size);
      continue;
    }
    if (text) {
      transform.copy_tokens(partition, rows[i], batch.tokens.data() + i * size);
    } else {
      transform.apply(partition, rows[i], batch.input.data() + i * size, edit);
    }
    if (!batch.target_class.empty()) batch.target_class[i] = partition.target_class[row];
    if (!batch.target_numeric.empty()) {
      batch.target_numeric[i] = transform.standardize_target(partition.target_numeric[row]);
    }
  }
}

/// A ring buffer of batches. Step s is in slot s % slots.size(). The live steps are the one that
/// the caller uses and the next prefetch_batches steps, so no two live steps share a slot.
struct Loader::Impl {
  struct Slot {
    Batch batch;
    bool ready = false;
  };

  const RowTransform transform;
  const Partition partition;
  const std::vector<int64_t> rows;
  const Options options;
  const int64_t steps_per_epoch;

  Mutex mu;
  CondVar changed;  // notified when a slot becomes ready or free
  // A slot's batch is not guarded: it belongs to the thread that claimed the step.
  std::vector<Slot> slots TRAINYARD_GUARDED_BY(mu);
  int64_t next_step TRAINYARD_GUARDED_BY(mu);   // the step that next() returns next
  int64_t claim_step TRAINYARD_GUARDED_BY(mu);  // the step that a thread prepares next
  std::exception_ptr fault TRAINYARD_GUARDED_BY(mu);
  double waited_seconds TRAINYARD_GUARDED_BY(mu) = 0;

  Mutex order_mu;  // held while an order is computed, so that no order is computed twice
  std::map<int64_t, std::shared_ptr<const std::vector<int64_t>>> orders
      TRAINYARD_GUARDED_BY(order_mu);  // keyed by epoch

  std::vector<std::jthread> threads;  // the last member, so that it is stopped and joined first

  Impl(const DatasetSchema& schema, const Preprocessing& p, const Partition& part,
       std::vector<int64_t> row_indices, const Options& o)
      : transform(schema, p),
        partition(part),
        rows(std::move(row_indices)),
        options(o),
        steps_per_epoch(
            o.batch_size > 0 ? batches_per_epoch(std::ssize(rows), o.batch_size, o.drop_last) : 0),
        next_step(o.first_step),
        claim_step(o.first_step) {
    TRAINYARD_CHECK(o.batch_size > 0 && steps_per_epoch > 0,
                    "batch size " + std::to_string(o.batch_size) + " of " +
                        std::to_string(rows.size()) + " rows");
    TRAINYARD_CHECK(o.first_step >= 0 && o.prefetch_batches > 0 && o.threads > 0,
                    "loader options out of range");
    TRAINYARD_CHECK(!o.samples || o.mixer.empty(), "samples are not mixed");
    TRAINYARD_CHECK(o.stored_rows == 0 || (o.samples && !part.image_u8.empty()),
                    "rows that travel are images of 8 bits, beside their samples");
    for (const int64_t row : rows) {
      if (transform.documents()) {
        TRAINYARD_CHECK(row >= 0 && part.packed != nullptr && row < part.packed->rows(),
                        "row out of range");
        continue;
      }
      // A window's last token needs the following token as its target.
      const int64_t after = transform.stream() ? transform.input_size() : 0;
      TRAINYARD_CHECK(row >= 0 && row + options.shift_max + after < partition.rows,
                      "row out of range");
    }
    slots.resize(static_cast<size_t>(o.prefetch_batches + 1));
    for (int i = 0; i < o.threads; ++i) {
      threads.emplace_back([this](const std::stop_token& stop) { run(stop); });
    }
  }

  Slot& slot_of(int64_t step) TRAINYARD_REQUIRES(mu) {
    return slots[static_cast<size_t>(step) % slots.size()];
  }

  /// Returns the order of an epoch's rows. Deletes the orders of epochs before `oldest`.
  std::shared_ptr<const std::vector<int64_t>> order_of(int64_t epoch, int64_t oldest) {
    const MutexLock lock(order_mu);
    orders.erase(orders.begin(), orders.lower_bound(oldest));
    auto& order = orders[epoch];
    if (!order) {
      order = std::make_shared<const std::vector<int64_t>>(permutation(
          std::ssize(rows), options.seed, stream_of("shuffle"), static_cast<uint64_t>(epoch)));
    }
    return order;
  }

  void fill_samples(std::span<const int64_t> selected, int64_t epoch, Batch& batch) const {
    batch.rows = std::ssize(selected);
    batch.samples.clear();
    batch.target_class.clear();
    for (const int64_t row : selected) {
      kernels::ResidentSample& sample =
          batch.samples.emplace_back(resident_sample(transform, partition, row));
      if (!options.augmenter.empty()) {
        sample.move = options.augmenter.draw_move(options.seed, epoch, row);
      }
      if (partition.target_class.empty()) continue;
      batch.target_class.push_back(partition.target_class[static_cast<size_t>(row)]);
    }
    if (options.stored_rows > 0) fill_staged(selected, batch);
  }

  void fill_staged(std::span<const int64_t> selected, Batch& batch) const {
    const auto size = static_cast<size_t>(transform.input_size());
    batch.stored.resize(selected.size() * size);
    for (size_t i = 0; i < selected.size(); ++i) {
      const auto row = partition.image_u8.subspan(static_cast<size_t>(selected[i]) * size, size);
      std::ranges::copy(row, batch.stored.begin() + static_cast<std::ptrdiff_t>(i * size));
      batch.samples[i].start =
          static_cast<int64_t>(i) % options.stored_rows * static_cast<int64_t>(size);
    }
  }

  void fill(int64_t step, int64_t oldest_epoch, Batch& batch) {
    const int64_t epoch = step / steps_per_epoch;
    const std::shared_ptr<const std::vector<int64_t>> order =
        options.shuffle ? order_of(epoch, oldest_epoch) : nullptr;
    std::vector<int64_t> selected(static_cast<size_t>(options.batch_size));
    // The first row of the order follows after the last one; this happens only in the last batch of
    // an epoch without drop_last.
    auto place = static_cast<size_t>(step % steps_per_epoch * options.batch_size);
    for (int64_t& row : selected) {
      row = rows[order ? static_cast<size_t>((*order)[place]) : place];
      if (++place == rows.size()) place = 0;
    }
    if (options.shuffle && options.shift_max > 0) {
      const uint32_t draw =
          math::philox_u32(options.seed, stream_of("window"), static_cast<uint64_t>(epoch), 0);
      const int64_t shift = int64_t{draw} % (options.shift_max + 1);
      for (int64_t& row : selected) row += shift;
    }
    if (options.samples) return fill_samples(selected, epoch, batch);
    std::vector<float> scratch;
    const auto augment = [&](int64_t row, std::span<float> image) {
      options.augmenter.apply(image, options.seed, epoch, row, scratch);
    };
    const bool augments = !options.augmenter.empty();
    fill_batch(transform, partition, selected, batch, augments ? ImageEdit(augment) : nullptr);
    if (transform.documents()) {
      batch.loss_shares = shares_of_parts(batch.target_class, options.parts);
    }
    if (options.mixer.empty()) return;
    const double share =
        options.mixer.mix_images(options.mixer.draw(options.seed, step), batch.input);
    batch.target_shares = options.mixer.mix_labels(share, batch.target_class);
  }

  bool has_space() const TRAINYARD_REQUIRES(mu) {
    return claim_step < next_step + options.prefetch_batches;
  }

  void run(const std::stop_token& stop) {
    try {
      MutexLock lock(mu);
      while (!stop.stop_requested()) {
        if (!has_space() && options.shuffle) {
          // The thread is idle, so it computes the next epoch's order before it is needed.
          const int64_t epoch = claim_step / steps_per_epoch;
          const int64_t oldest = (next_step - 1) / steps_per_epoch;
          lock.unlock();
          (void)order_of(epoch + 1, oldest);
          lock.lock();
        }
        if (!changed.wait(lock, stop, [&]() TRAINYARD_REQUIRES(mu) { return has_space(); })) return;
        const int64_t step = claim_step++;
        const int64_t oldest = (next_step - 1) / steps_per_epoch;
        Slot& slot = slot_of(step);
        lock.unlock();
        fill(step, oldest, slot.batch);
        lock.lock();
        slot.ready = true;
        changed.notify_all();
      }
    } catch (...) {
      const MutexLock lock(mu);
      fault = std::current_exception();
      changed.notify_all();
    }
  }

  const Batch& next() {
    MutexLock lock(mu);
    if (next_step > options.first_step) slot_of(next_step - 1).ready = false;
    Slot& slot = slot_of(next_step);
    if (!slot.ready && !fault) {
      const auto start = std::chrono::steady_clock::now();
      changed.wait(lock, [&]() TRAINYARD_REQUIRES(mu) { return slot.ready || fault; });
      waited_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (fault) std::rethrow_exception(fault);
    ++next_step;
    changed.notify_all();
    return slot.batch;
  }
};

Loader::Loader(const DatasetSchema& schema, const Preprocessing& preprocessing,
               const Partition& partition, std::vector<int64_t> rows, const Options& options)
    : impl_(std::make_unique<Impl>(schema, preprocessing, partition, std::move(rows), options)) {}
Loader::~Loader() = default;

int64_t Loader::steps_per_epoch() const { return impl_->steps_per_epoch; }
const Batch& Loader::next() { return impl_->next(); }
double Loader::wait_seconds() const {
  const MutexLock lock(impl_->mu);
  return impl_->waited_seconds;
}

}  // namespace trainyard
