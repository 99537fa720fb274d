#include "src/train/replicated_session.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <thread>
#include <tuple>
#include <utility>

namespace trainyard {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Steps with long limits: the first submits kernels one by one, the second records them. From the
// third on, steps take a constant time.
constexpr int64_t kFirstSteps = 3;
// Interval between two checks whether another process has ended.
constexpr std::chrono::milliseconds kCheckInterval{20};
// A process that ends because of its limit needs up to grace_s for its own threads, so others wait
// for this multiple of StepLimits::grace_s.
constexpr double kGraceMultiple = 3;
constexpr double kEndedWithinS = 2;

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", s);
  return text;
}

}  // namespace

ReplicatedSession::ReplicatedSession(std::vector<RunPrograms> programs,
                                     std::vector<RankDevice> devices, int64_t micro_batches,
                                     const StepLimits& limits,
                                     const std::shared_ptr<const WeightsFile>& mapped)
    : replicas_(std::make_shared<Replicas>()),
      peers_(devices.front().backend->communicator() == nullptr
                 ? nullptr
                 : devices.front().backend->communicator()->peers()),
      exchanges_(exchanges_of(programs.front(), micro_batches)),
      evaluation_exchanges_(programs.front().evaluate.has_value()
                                ? exchanges_in(programs.front().evaluate->program)
                                : 0),
      micro_batches_(micro_batches),
      limits_(limits),
      exceptions_before_(std::uncaught_exceptions()),
      team_(devices.size()) {
  TRAINYARD_CHECK(programs.size() == devices.size() && !exchanges_.empty(),
                  "programs for " + std::to_string(programs.size()) + " ranks, " +
                      std::to_string(devices.size()) + " devices");
  for (const RankDevice& device : devices) {
    TRAINYARD_CHECK(device.backend->communicator() != nullptr,
                    device.name + " is connected to no other device");
  }
  replicas_->devices = std::move(devices);
  replicas_->sessions.resize(ranks());
  replicas_->results.resize(ranks());
  replicas_->checksums.resize(ranks());
  const auto compiled = std::make_shared<std::vector<RunPrograms>>(std::move(programs));
  run_all(
      [compiled, micro_batches, mapped, first = first_rank(), count = all_ranks()](Replicas& all,
                                                                                   size_t r) {
        const Rank rank{first + static_cast<int64_t>(r), count};
        all.sessions[r] = std::make_unique<Session>(
            std::move((*compiled)[r]), *all.devices[r].backend, micro_batches, rank, mapped);
      },
      kNoLimit);
}

// The sessions' destructors wait for the steps under way, so they run on the ranks' threads, with
// the time limit of a step. If an exception ends the session, a step on GPUs may wait for ranks of
// a process that has ended; then the exchanges are aborted first.
ReplicatedSession::~ReplicatedSession() {
  if (gave_up_) return;
  const bool is_alone = must_check_peers() && std::uncaught_exceptions() > exceptions_before_;
  const std::optional<RankTeam::Failure> failure =
      is_alone ? RankTeam::Failure{}
               : team_.run([all = replicas_](size_t r) { all->sessions[r] = nullptr; },
                           step_limit_s(), [this] { return watch(); });
  if (failure.has_value()) give_up();
}

void ReplicatedSession::give_up() {
  gave_up_ = true;
  for (const RankDevice& device : replicas_->devices) device.backend->communicator()->abort();
  // NCCL ends an aborted communicator after its recordings have been destroyed, with the sessions.
  team_.end([all = replicas_](size_t r) { all->sessions[r] = nullptr; }, limits_.grace_s);
}

bool ReplicatedSession::must_check_peers() const {
  return peers_ != nullptr && !replicas_->devices.front().backend->communicator()->sends_by_peers();
}

void ReplicatedSession::run_all(std::function<void(Replicas&, size_t)> task, double limit_s) {
  const auto failure =
      team_.run([all = replicas_, task = std::move(task)](size_t r) { task(*all, r); }, limit_s,
                [this] { return watch(); });
  if (failure.has_value()) fail(*failure, limit_s);
}

std::optional<RankTeam::Failure> ReplicatedSession::watch() const {
  size_t r = 0;
  try {
    if (must_check_peers()) peers_->check();
    for (; r < ranks(); ++r) replicas_->devices[r].backend->communicator()->check();
  } catch (...) {
    return RankTeam::Failure{r, std::current_exception()};
  }
  return std::nullopt;
}

void ReplicatedSession::fail(const RankTeam::Failure& failure, double limit_s) {
  const std::string stopped = failure.rank.has_value() ? "" : describe_stop(limit_s);
  auto silent = failure.rank.has_value() ? std::nullopt : find_silent(limit_s);
  if (!failure.rank.has_value() && waits_for_others()) {
    // The process whose rank has stopped has the same limit and better knowledge; it ends first.
    silent = find_ended(limits_.grace_s * kGraceMultiple);
    if (!silent.has_value()) silent.emplace(stopped, is_first() ? peers_->ranks_each() : 0);
  }
  give_up();
  if (silent.has_value()) throw RankLost(*silent);
  if (!failure.rank.has_value()) throw RankStopped(stopped);
  try {
    std::rethrow_exception(failure.error);
  } catch (const CudaError& e) {
    // When a process ends, NCCL may return an error before the connections show the end.
    if (const auto gone = find_ended(kEndedWithinS)) throw RankLost(*gone);
    throw CudaError(name_of(*failure.rank) + ": " + e.what(), e.code(), e.fault());
  }
}

std::string ReplicatedSession::name_of(size_t rank) const {
  return "rank " + std::to_string(first_rank() + static_cast<int64_t>(rank)) + " (" +
         replicas_->devices[rank].name + ")";
}

std::optional<RankLost> ReplicatedSession::find_silent(double limit_s) const {
  const int64_t awaited = peers_ == nullptr ? -1 : peers_->awaited();
  if (awaited < 0) return std::nullopt;
  return RankLost(peers_->name_of(awaited) + " has not continued within " + seconds(limit_s) +
                      ", in step " + std::to_string(first_step_ + steps_begun_) +
                      ", and the other ranks are waiting for it",
                  awaited * peers_->ranks_each());
}

std::optional<RankLost> ReplicatedSession::find_ended(double within_s) const {
  if (!must_check_peers()) return std::nullopt;
  const auto end = Clock::now() + std::chrono::duration<double>(within_s);
  while (true) {
    try {
      peers_->check();
    } catch (const RankLost& e) {
      return e;
    }
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(kCheckInterval);
  }
}

bool ReplicatedSession::waits_for_others() const {
  if (!must_check_peers()) return false;
  const int64_t reached = replicas_->devices.front().backend->communicator()->reached();
  return std::ranges::all_of(replicas_->devices, [&](const RankDevice& device) {
    const Communicator& c = *device.backend->communicator();
    return c.reached() == reached && c.ended() < reached;
  });
}

std::string ReplicatedSession::names_of_others() const {
  std::string names;
  for (int64_t p = 0; p < peers_->count(); ++p) {
    if (p != peers_->index()) names += (names.empty() ? "" : ", ") + peers_->name_of(p);
  }
  return names;
}

std::string ReplicatedSession::describe_stop(double limit_s) const {
  // The rank with the least progress in steps stopped first; the others wait for it.
  const int64_t outside = evaluations_ * evaluation_exchanges_;  // exchanges outside of steps
  const auto progress = [&](size_t r) {
    const Communicator& c = *replicas_->devices[r].backend->communicator();
    return std::tuple(c.reached() - outside, c.ended() - outside, !team_.is_busy(r));
  };
  size_t first = 0;
  int64_t furthest = 0;
  for (size_t r = 0; r < ranks(); ++r) {
    if (progress(r) < progress(first)) first = r;
    furthest = std::max(furthest, std::get<0>(progress(r)));
  }
  const auto [reached, ended, is_back] = progress(first);
  const bool is_of_others = waits_for_others();
  const std::string others =
      is_of_others ? ": all ranks of this process have reached it, and it did not end within " +
                         seconds(limit_s) + "; one of the others (" + names_of_others() +
                         ") has stopped, or the connection between the nodes does not work"
                   : "";
  if (evaluates_) {
    return name_of(first) + " stopped in an evaluation after step " +
           std::to_string(first_step_ + steps_begun_) +
           (is_of_others ? others
                         : ": it has not continued within " + seconds(limit_s) +
                               ", and the other ranks are waiting for it");
  }
  const auto in_step = std::ssize(exchanges_);
  const bool is_inside = reached == furthest && ended < reached;
  const bool is_behind_all = reached >= in_step * steps_begun_;
  const int64_t step = std::min((is_inside ? reached - 1 : reached) / in_step, steps_begun_ - 1);
  std::string text = name_of(first) + " stopped in step " + std::to_string(first_step_ + step + 1);
  if (is_inside) {
    text += " in " + exchanges_[static_cast<size_t>((reached - 1) % in_step)];
    if (is_of_others) return text + others;
    return text + ": all ranks have reached it, and it did not end within " + seconds(limit_s) +
           "; the connection between the devices does not work";
  }
  text += is_behind_all ? " after " + exchanges_.back()
                        : " before " + exchanges_[static_cast<size_t>(reached % in_step)];
  return text + ": it has not continued within " + seconds(limit_s) +
         ", and the other ranks are waiting for it";
}

double ReplicatedSession::step_limit_s() const {
  return steps_finished_ < kFirstSteps ? limits_.first_s
                                       : std::max(limits_.least_s, limits_.times * slowest_s_);
}

void ReplicatedSession::initialize(uint64_t seed) {
  run_all([seed](Replicas& all, size_t r) { all.sessions[r]->initialize(seed); }, kNoLimit);
}

Status ReplicatedSession::load(const SafetensorsFile& weights, const SafetensorsFile& optimizer) {
  for (const auto& session : replicas_->sessions) {
    if (Status s = session->load(weights, optimizer); !s.ok()) return s;
  }
  return {};
}

std::vector<const Session*> ReplicatedSession::all() const {
  std::vector<const Session*> sessions;
  for (const auto& session : replicas_->sessions) sessions.push_back(session.get());
  return sessions;
}

Snapshot ReplicatedSession::snapshot() const {
  Snapshot snapshot = first().snapshot(all());
  collect_shards(snapshot, Session::Copied::kAll);
  return snapshot;
}

Snapshot ReplicatedSession::evaluated_weights() const {
  Snapshot snapshot = first().evaluated_weights(all());
  collect_shards(snapshot, Session::Copied::kEvaluated);
  return snapshot;
}

void ReplicatedSession::collect_shards(Snapshot& snapshot, Session::Copied copied) const {
  if (peers_ == nullptr) return;
  Peers::Outgoing out(static_cast<size_t>(peers_->count()));
  Peers::Incoming in(static_cast<size_t>(peers_->count()));
  for (int64_t r = 0; r < all_ranks(); ++r) {
    const auto process = static_cast<size_t>(r / peers_->ranks_each());
    const auto parts = first().parts_of(snapshot, {r, all_ranks()}, copied);
    if (is_first() && process > 0) {
      in[process].insert(in[process].end(), parts.begin(), parts.end());
    } else if (static_cast<int64_t>(process) == peers_->index() && !is_first()) {
      out[0].insert(out[0].end(), parts.begin(), parts.end());
    }
  }
  peers_->exchange(out, in);
}

void ReplicatedSession::check_replicas(int64_t step) {
  run_all([](Replicas& all, size_t r) { all.checksums[r] = all.sessions[r]->checksums(); },
          limits_.first_s);
  const auto sums = all_checksums();
  if (std::ranges::all_of(sums, [&](const auto& sum) { return sum == sums.front(); })) return;
  const auto agree_with = [&](size_t r) { return std::ranges::count(sums, sums[r]); };
  size_t most = 0, odd = 0;
  for (size_t r = 1; r < sums.size(); ++r) {
    if (agree_with(r) > agree_with(most)) most = r;
  }
  while (sums[odd] == sums[most]) ++odd;
  const auto tensor = std::ranges::find_if(
      sums[odd], [&](const auto& entry) { return sums[most].at(entry.first) != entry.second; });
  const auto name = [&](size_t r) {
    const int64_t here = static_cast<int64_t>(r) - first_rank();
    return here >= 0 && here < std::ssize(replicas_->devices) ? name_of(static_cast<size_t>(here))
                                                              : "rank " + std::to_string(r);
  };
  const bool known = agree_with(most) * 2 > std::ssize(sums);
  throw RanksDiffer(name(odd) + (known ? "" : " or " + name(most)) + " has other values of " +
                    tensor->first + " than " + (known ? "most of the others" : "it should") +
                    " after step " + std::to_string(step) +
                    ": a device, its memory or a link has changed bits without an error");
}

void ReplicatedSession::write_weight(std::string_view name, std::span<const std::byte> bytes) {
  for (const auto& session : replicas_->sessions) session->write_weight(name, bytes);
}

void ReplicatedSession::write_weight_part(std::string_view name, int64_t first,
                                          std::span<const std::byte> bytes) {
  for (const auto& session : replicas_->sessions) session->write_weight_part(name, first, bytes);
}

void ReplicatedSession::set_evaluated_weights(const Snapshot& weights) {
  for (const auto& session : replicas_->sessions) session->set_evaluated_weights(weights);
}

void ReplicatedSession::share_state() {
  if (state_of_ == steps_begun_) return;
  std::vector<std::byte> state = first().read_state();
  if (peers_ != nullptr) peers_->broadcast(0, state);
  for (size_t r = is_first() ? 1 : 0; r < ranks(); ++r) replicas_->sessions[r]->write_state(state);
  state_of_ = steps_begun_;
}

void ReplicatedSession::evaluate(std::span<const std::byte> input,
                                 std::span<const std::byte> positions) {
  share_state();
  shared_rows_.clear();
  evaluates_ = true;
  run_all(
      [this, input, positions](Replicas& all, size_t r) {
        all.sessions[r]->evaluate(of_rank(input, r), of_rank(positions, r));
      },
      limits_.first_s);
  evaluates_ = false;
  ++evaluations_;
}

void ReplicatedSession::evaluate_resident(std::span<const kernels::ResidentSample> samples) {
  share_state();
  shared_rows_.clear();
  evaluates_ = true;
  run_all([this, samples](Replicas& all,
                          size_t r) { all.sessions[r]->evaluate_resident(of_rank(samples, r)); },
          limits_.first_s);
  evaluates_ = false;
  ++evaluations_;
}

void ReplicatedSession::join_classes(std::span<const std::span<const float>> parts,
                                     std::vector<float>& row) const {
  const auto columns = static_cast<size_t>(first().output_columns());
  const auto classes = static_cast<size_t>(first().split_classes());
  for (size_t at = 0; at < parts.front().size(); at += columns) {
    for (size_t r = 0; r < parts.size(); ++r) {
      const size_t begin = std::min(classes, r * columns), end = std::min(classes, begin + columns);
      const std::span<const float> part = parts[r].subspan(at, end - begin);
      row.insert(row.end(), part.begin(), part.end());
    }
  }
}

std::span<const float> ReplicatedSession::evaluation_output(int64_t row) {
  if (first().split_classes() > 0) {
    std::vector<std::span<const float>> parts;
    for (const auto& session : replicas_->sessions)
      parts.push_back(session->evaluation_output(row));
    evaluated_row_.clear();
    join_classes(parts, evaluated_row_);
    return evaluated_row_;
  }
  const int64_t batch = first().evaluation_batch(), rank = row / batch;
  const int64_t here = rank - first_rank();
  if (peers_ == nullptr) {
    return replicas_->sessions[static_cast<size_t>(here)]->evaluation_output(row % batch);
  }
  // All processes read the rows in the same order. The process that has the next rows sends as many
  // as one read returns.
  const auto width = static_cast<size_t>(first().evaluation_row_elements());
  const auto buffered = static_cast<int64_t>(shared_rows_.size() / width);
  if (row < shared_first_ || row >= shared_first_ + buffered) {
    const int64_t count = std::min(first().evaluation_rows_read(), (rank + 1) * batch - row);
    shared_first_ = row;
    shared_rows_.resize(static_cast<size_t>(count) * width);
    if (here >= 0 && here < std::ssize(replicas_->sessions)) {
      Session& session = *replicas_->sessions[static_cast<size_t>(here)];
      for (int64_t i = 0; i < count; ++i) {
        std::ranges::copy(session.evaluation_output((row + i) % batch),
                          shared_rows_.begin() + i * static_cast<int64_t>(width));
      }
    }
    peers_->broadcast(rank / peers_->ranks_each(), std::as_writable_bytes(std::span(shared_rows_)));
  }
  return std::span<const float>(shared_rows_)
      .subspan(static_cast<size_t>(row - shared_first_) * width, width);
}

bool ReplicatedSession::any(bool here) { return peers_ == nullptr ? here : peers_->any(here); }

std::string ReplicatedSession::of_first(std::string text) {
  return peers_ == nullptr ? text : peers_->of_first(text);
}

std::vector<std::map<std::string, uint32_t>> ReplicatedSession::all_checksums() const {
  if (peers_ == nullptr) return replicas_->checksums;
  const size_t tensors = replicas_->checksums.front().size();
  std::vector<uint32_t> all(static_cast<size_t>(all_ranks()) * tensors);
  auto to = all.begin() + first_rank() * static_cast<int64_t>(tensors);
  for (const auto& sums : replicas_->checksums) {
    for (const auto& [name, sum] : sums) *to++ = sum;
  }
  peers_->all_gather(std::as_writable_bytes(std::span(all)));
  std::vector<std::map<std::string, uint32_t>> result(static_cast<size_t>(all_ranks()));
  auto from = all.begin();
  for (auto& sums : result) {
    for (const auto& [name, sum] : replicas_->checksums.front()) sums[name] = *from++;
  }
  return result;
}

void ReplicatedSession::wait_after_nodes(bool waits) {
  for (const auto& session : replicas_->sessions) session->wait_after_nodes(waits);
}

void ReplicatedSession::make_resident(const ResidentSource& source) {
  run_all([source](Replicas& all, size_t r) { all.sessions[r]->make_resident(source); }, kNoLimit);
}

void ReplicatedSession::stage_rows(const StagedSource& source) {
  run_all([source](Replicas& all, size_t r) { all.sessions[r]->stage_rows(source); }, kNoLimit);
}

void ReplicatedSession::begin_steps(int64_t count, const std::function<StepInputs()>& next) {
  TRAINYARD_CHECK(count == 1, "ranks begin one step at a time");
  const StepInputs inputs = next();
  if (steps_begun_++ == 0) first_step_ = inputs.step;
  under_way_.push_back(Clock::now());
  run_all([inputs](Replicas& all, size_t r) { all.sessions[r]->begin_step(inputs); },
          step_limit_s());
}

void ReplicatedSession::join_logits(const std::vector<StepResult>& parts) {
  logits_.clear();
  if (first().split_classes() > 0) {  // each rank has its classes of all rows
    std::vector<std::span<const float>> classes;
    for (const StepResult& part : parts) classes.push_back(part.logits);
    join_classes(classes, logits_);
    return;
  }
  // The order of rows in the batch: for each micro-batch the parts of all ranks.
  const size_t size = parts.front().logits.size() / static_cast<size_t>(micro_batches_);
  for (size_t k = 0; k < static_cast<size_t>(micro_batches_); ++k) {
    for (const StepResult& part : parts) {
      const auto rows = part.logits.subspan(k * size, size);
      logits_.insert(logits_.end(), rows.begin(), rows.end());
    }
  }
}

std::vector<TrainingSession::StepResult> ReplicatedSession::all_results() {
  if (peers_ == nullptr) return replicas_->results;
  const size_t size = 1 + replicas_->results.front().logits.size();
  gathered_.resize(size * static_cast<size_t>(all_ranks()));
  const auto of = [&](int64_t rank) {
    return std::span(gathered_).subspan(static_cast<size_t>(rank) * size, size);
  };
  for (size_t r = 0; r < ranks(); ++r) {
    const StepResult& mine = replicas_->results[r];
    const std::span<float> to = of(first_rank() + static_cast<int64_t>(r));
    to.front() = mine.loss;
    std::ranges::copy(mine.logits, to.begin() + 1);
  }
  peers_->all_gather(std::as_writable_bytes(std::span(gathered_)));
  // The other members of a result are equal on all ranks.
  std::vector<StepResult> all(static_cast<size_t>(all_ranks()), replicas_->results.front());
  for (int64_t r = 0; r < all_ranks(); ++r) {
    all[static_cast<size_t>(r)].loss = of(r).front();
    all[static_cast<size_t>(r)].logits = of(r).subspan(1);
  }
  return all;
}

TrainingSession::StepResult ReplicatedSession::finish_step() {
  run_all([](Replicas& all, size_t r) { all.results[r] = all.sessions[r]->finish_step(); },
          step_limit_s());
  const std::vector<StepResult> parts = all_results();
  if (++steps_finished_ > kFirstSteps) {
    const std::chrono::duration<double> took = Clock::now() - under_way_.front();
    slowest_s_ = std::max(slowest_s_, took.count());
  }
  under_way_.pop_front();
  double loss = 0;
  for (const StepResult& part : parts) loss += static_cast<double>(part.loss);
  join_logits(parts);
  StepResult result =
      parts.front();  // gradient norm and loss scale are those of the mean gradients
  result.loss = static_cast<float>(loss / static_cast<double>(all_ranks()));
  result.logits = logits_;
  return result;
}

}  // namespace trainyard
