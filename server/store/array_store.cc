#include "server/store/array_store.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>

#include "server/store/array_rows.h"
#include "server/store/dependencies.h"
#include "server/store/event_rows.h"
#include "server/store/job_rows.h"
#include "server/store/job_steering.h"
#include "server/store/page_token.h"
#include "server/store/proto_time.h"
#include "server/store/quota_rows.h"
#include "server/store/random_id.h"
#include "server/store/store_core.h"
#include "server/store/submit_checks.h"
#include "src/base/check.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

/// Returns the array created by an earlier request with this ID, or its error; nothing for a new
/// ID.
std::optional<Result<JobArray>> find_request_array(Connection& db, const RequestId& request) {
  const Result<std::optional<std::string>> uid = find_request_uid(db, request);
  if (!uid.ok()) return uid.error();
  if (!*uid) return std::nullopt;
  std::optional<JobArray> array = find_array_uid(db, **uid);
  if (!array) {
    return make_error(ErrorCode::kNotFound, "ARRAY_NOT_FOUND",
                      "request_id: the array that this request created has been deleted.");
  }
  return std::move(*array);
}

/// Returns the first job or model that already has the ID of a future member.
std::optional<std::string> find_taken_id(Connection& db, const std::string& project,
                                         const std::string& id, int64_t size) {
  const std::string from = id + "-";
  const std::string to = id + ".";  // '.' is the character after '-'
  const auto is_member = [&](const std::string& text) {
    const std::string_view digits = std::string_view(text).substr(from.size());
    int64_t index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    return error == std::errc() && end == digits.data() + digits.size() && index < size &&
           std::to_string(index) == digits;
  };
  Query jobs(db, "SELECT id FROM jobs WHERE project = ? AND id > ? AND id < ? ORDER BY id");
  jobs.bind(project).bind(from).bind(to);
  while (jobs.step()) {
    if (is_member(jobs.text(0))) return jobs.text(0);
  }
  Query models(db, "SELECT id FROM models WHERE project = ? AND id > ? AND id < ? ORDER BY id");
  models.bind(project).bind(from).bind(to);
  while (models.step()) {
    if (is_member(models.text(0))) return models.text(0);
  }
  return std::nullopt;
}

/// Returns the requested ID if it is free, or a new random one if none was requested.
Result<std::string> choose_id(Connection& db, const NewArray& asked, int64_t now_us) {
  const int64_t size = std::ssize(asked.members);
  if (asked.id.empty()) {
    std::string id;
    do id = random_array_id(now_us);
    while (find_array_key(db, asked.project, id) || find_taken_id(db, asked.project, id, size));
    return id;
  }
  if (find_array_key(db, asked.project, asked.id)) {
    return make_error(ErrorCode::kAlreadyExists, "ARRAY_EXISTS",
                      "array_id: " + quoted_value(asked.id) +
                          " is already the name of an array; choose another, or leave it out.");
  }
  if (const auto taken = find_taken_id(db, asked.project, asked.id, size)) {
    return make_error(ErrorCode::kAlreadyExists, "JOB_EXISTS",
                      "array_id: the member " + quoted_value(*taken) +
                          " would have the name of a job or a model; choose another name for the "
                          "array, or leave it out.");
  }
  return asked.id;
}

/// Checks the datasets and initial models of all members, and returns the unfinished jobs that each
/// member waits for.
Result<std::vector<Awaited>> check_members(Connection& db, const NewArray& asked) {
  for (const MemberShape& shape : asked.shapes) {
    if (shape.dataset.id.empty()) continue;
    if (Status s = check_dataset(db, asked.project, shape.dataset_project, shape.dataset);
        !s.ok()) {
      return s.error();
    }
  }
  NewJob one;
  one.project = asked.project;
  one.after = asked.after;
  ASSIGN_OR_RETURN(std::vector<Awaited> awaited, find_awaited(db, one));
  const int64_t waits = std::ssize(awaited) * std::ssize(asked.members);
  if (waits > kArrayWaitsMax) {
    return field_error("ARRAY_SIZE_INVALID", "spec.after",
                       std::to_string(asked.members.size()) + " members that each wait for " +
                           std::to_string(awaited.size()) + " jobs are " + std::to_string(waits) +
                           " dependencies, expected at most " + std::to_string(kArrayWaitsMax) +
                           "; let them wait for one job that waits for the others");
  }
  for (const MemberShape& shape : asked.shapes) {
    if (Status s = check_initial_model(db, asked.project, shape.initial_model_project,
                                       shape.initial_model_id, awaited);
        !s.ok()) {
      return s.error();
    }
  }
  return awaited;
}

/// The initial state, which is the same for every member.
struct FirstState {
  std::string reason;
  std::string message;
  std::string event;  // QUEUED, serialized
};

FirstState first_state(const std::vector<Awaited>& awaited, int64_t now_us) {
  const NewJob job;
  FirstState first{job.reason, job.message, {}};
  if (!awaited.empty()) {
    first.reason = kWaitingForJob;
    first.message = waiting_message(awaited.front(), static_cast<int32_t>(awaited.size()));
  }
  v1::Event event;
  event.set_seq(1);
  *event.mutable_time() = to_timestamp(now_us);
  event.mutable_state()->set_state(v1::QUEUED);
  event.mutable_state()->set_reason(first.reason);
  event.mutable_state()->set_message(first.message);
  first.event = pack_event(std::move(event));
  return first;
}

/// Does the work of insert_job() with messages that are already serialized, so that ten thousand
/// members block the writer thread as briefly as possible.
int64_t insert_member(Connection& db, const JobArray& array, const NewArray& asked, size_t index,
                      const JobBrief& brief, const FirstState& first) {
  const NewMember& member = asked.members[index];
  const MemberShape& shape = asked.shapes[member.shape];
  int64_t order = 0;
  {
    Query query(
        db,
        "INSERT INTO jobs (project, id, uid, dataset, spec, state, reason, message, priority,"
        " cancel_requested, attempt, device, create_time_us, start_time_us, end_time_us, plan,"
        " progress, checkpoint_step, model, newest_seq, event_time_us, workers_lost,"
        " retry_time_us, initial_model, dataset_version, owner, waits_for, array, array_index,"
        " array_values, dataset_project, initial_model_project)"
        " VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, 0, 0, '', ?, 0, 0, ?, x'', 0, '', 1, ?, 0, 0, ?, ?,"
        " ?, ?, ?, ?, ?, ?, ?)");
    query.bind(array.project).bind(brief.id).bind(brief.uid).bind(shape.dataset.id);
    query.bind_blob(member.spec).bind(first.reason).bind(first.message);
    query.bind(int64_t{member.priority}).bind(array.create_time_us).bind_blob(shape.plan);
    query.bind(array.create_time_us).bind(shape.initial_model_id);
    query.bind(int64_t{shape.dataset.version}).bind(array.owner).bind(int64_t{brief.waits_for});
    query.bind(array.order).bind(static_cast<int64_t>(index)).bind_blob(member.values);
    query.bind(shape.dataset_project).bind(shape.initial_model_project).run();
    order = db.last_row();
  }
  Query(db, "INSERT INTO events (job, seq, payload) VALUES (?, 1, ?)")
      .bind(order)
      .bind_blob(first.event)
      .run();
  return order;
}

void insert_members(WriteContext& context, const JobArray& array, const NewArray& asked,
                    const std::vector<Awaited>& awaited) {
  const FirstState first = first_state(awaited, context.now_us);
  for (size_t i = 0; i < asked.members.size(); ++i) {
    const NewMember& member = asked.members[i];
    TRAINYARD_CHECK(member.shape < asked.shapes.size(),
                    "member " + std::to_string(i) + " of the array " + array.id +
                        " has the plan number " + std::to_string(member.shape) + " of " +
                        std::to_string(asked.shapes.size()));
    JobChange& change = context.changes.emplace_back();
    change.uid = random_uid(context.now_us);
    change.newest_seq = 1;
    change.state = JobState::kQueued;
    change.time_us = context.now_us;
    JobBrief& brief = change.reschedules.emplace(asked.shapes[member.shape].brief);
    brief.uid = change.uid;
    brief.priority = member.priority;
    brief.owner = array.owner;
    brief.waits_for = static_cast<int32_t>(awaited.size());
    brief.id = member_id(array.id, static_cast<int64_t>(i));
    brief.project = array.project;
    brief.time_us = context.now_us;
    brief.order = insert_member(context.db, array, asked, i, brief, first);
    insert_dependencies(context.db, brief.order, awaited);
  }
}

Result<JobArray> submit_array(WriteContext& context, const NewArray& asked,
                              int64_t queued_jobs_max) {
  Connection& db = context.db;
  const RequestId request{asked.project, asked.request_id, asked.request_digest};
  if (!request.id.empty()) {
    forget_old_requests(db, context.now_us);
    if (auto answer = find_request_array(db, request)) return std::move(*answer);
  }
  if (asked.refusal) return *asked.refusal;
  JobArray array;
  array.project = asked.project;
  ASSIGN_OR_RETURN(array.id, choose_id(db, asked, context.now_us));
  const int64_t size = std::ssize(asked.members);
  if (Status s = check_quota(db, asked.project, queued_jobs_max, size); !s.ok()) return s.error();
  JobNeeds most;
  for (const MemberShape& shape : asked.shapes) {
    const JobNeeds needs = needs_of(shape.brief);
    most = {std::max(most.devices, needs.devices), std::max(most.device_us, needs.device_us)};
  }
  if (Status s = check_submit_quotas(db, asked.project, asked.owner, size, most); !s.ok()) {
    return s.error();
  }
  ASSIGN_OR_RETURN(const std::vector<Awaited> awaited, check_members(db, asked));
  array.uid = random_uid(context.now_us);
  array.owner = asked.owner;
  array.spec = asked.spec;
  array.array = asked.array;
  array.size = static_cast<int32_t>(size);
  array.create_time_us = context.now_us;
  insert_array(db, array);
  insert_members(context, array, asked, awaited);
  keep_request(db, request, array.uid, context.now_us);
  array.states = {{JobState::kQueued, size}};
  return array;
}

/// Returns the first kMembersMax unfinished members whose numbers are above `after`, in ascending
/// order.
std::vector<int64_t> unfinished_members(Connection& db, int64_t array, int64_t after) {
  static_assert(static_cast<int>(JobState::kPaused) == 4);  // the last state that is not terminal
  std::vector<int64_t> numbers;
  for (int64_t state = 1; state <= 4; ++state) {
    Query query(db,
                "SELECT number FROM jobs INDEXED BY jobs_by_array"
                " WHERE array = ? AND array > 0 AND state = ? AND number > ?"
                " ORDER BY number LIMIT ?");
    query.bind(array).bind(state).bind(after).bind(kMembersMax);
    while (query.step()) numbers.push_back(query.integer(0));
  }
  std::ranges::sort(numbers);
  if (std::ssize(numbers) > kMembersMax) numbers.resize(kMembersMax);
  return numbers;
}

Status steer_job(WriteContext& context, Job& job, Steering steering) {
  switch (steering) {
    case Steering::kCancel:
      return cancel_job(context, job);
    case Steering::kPause:
      if (job.cancel_requested) return {};
      return pause_job(context, job);
    case Steering::kResume:
      break;
  }
  return resume_job(context, job);
}

/// A pass over an array's members in the order of their numbers. It visits each member once, so
/// that two passes with opposite requests both terminate.
struct Walk {
  std::string project;
  std::string id;
  Steering steering;
  Done<JobArray> done;
  std::string uid = {};  // uid of the array; empty before the first piece
  int64_t after = 0;     // the number of the last visited member
};

struct Piece {
  std::string uid;
  int64_t after = 0;
  std::optional<JobArray> array;  // only in the last piece
};

Result<Piece> steer_piece(WriteContext& context, const Walk& walk) {
  ASSIGN_OR_RETURN(const ArrayKey key, get_array_key(context.db, walk.project, walk.id));
  if (!walk.uid.empty() && key.uid != walk.uid) {  // a new array has the name of the deleted one
    return array_not_found(walk.id);
  }
  Piece piece{key.uid, walk.after, {}};
  const std::vector<int64_t> numbers = unfinished_members(context.db, key.order, walk.after);
  for (const int64_t number : numbers) {
    TRAINYARD_CHECK(number > piece.after, "in a pass over the array " + walk.id + ", job " +
                                              std::to_string(number) + " follows job " +
                                              std::to_string(piece.after));
    Job job = get_job_numbered(context.db, number);
    if (Status s = steer_job(context, job, walk.steering); !s.ok()) return s.error();
    piece.after = number;
  }
  if (std::ssize(numbers) < kMembersMax) {
    ASSIGN_OR_RETURN(piece.array, get_array(context.db, walk.project, walk.id));
  }
  return piece;
}

/// Queues the next piece only after this piece is committed, so that other changes run in between.
void walk_on(StoreCore& core, std::shared_ptr<Walk> walk) {
  core.change<Piece>([walk](WriteContext& context) { return steer_piece(context, *walk); },
                     [&core, walk](Result<Piece> piece) {
                       if (!piece.ok()) return walk->done(std::move(piece).error());
                       if (piece->array) return walk->done(*std::move(piece->array));
                       walk->uid = piece->uid;
                       walk->after = piece->after;
                       walk_on(core, walk);
                     },
                     Urgency::kEssential);
}

Result<RemovedMembers> remove_piece(WriteContext& context, const std::string& project,
                                    const std::string& id) {
  ASSIGN_OR_RETURN(const ArrayKey key, get_array_key(context.db, project, id));
  JobArray array;
  array.states = read_array_states(context.db, key.order);
  if (!array.has_ended()) {
    const auto unfinished = std::ranges::find_if(
        array.states, [](const auto& count) { return !is_terminal(count.first); });
    Error e = make_error(ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                         std::to_string(unfinished->second) + " members of " + id + " are " +
                             std::string(name_of(unfinished->first)) +
                             "; cancel it and wait until all have ended before deleting it.");
    e.metadata["state"] = name_of(unfinished->first);
    return e;
  }
  std::vector<int64_t> numbers;
  {
    Query query(context.db,
                "SELECT number FROM jobs INDEXED BY jobs_by_array WHERE array = ? AND array > 0"
                " LIMIT ?");
    query.bind(key.order).bind(kMembersMax);
    while (query.step()) numbers.push_back(query.integer(0));
  }
  RemovedMembers removed;
  for (const int64_t number : numbers) {
    const Job job = get_job_numbered(context.db, number);
    if (Status s = remove_job(context, job); !s.ok()) return s.error();
    removed.uids.push_back(job.uid);
  }
  removed.all = !find_array_key(context.db, project, id);
  return removed;
}

}  // namespace

void ArrayStore::submit(NewArray array, Done<JobArray> done) {
  core_.change<JobArray>([array = std::move(array), quota = core_.options.queued_jobs_max](
                             WriteContext& context) { return submit_array(context, array, quota); },
                         std::move(done), Urgency::kLarge);
}

Result<std::optional<JobArray>> ArrayStore::find_request(const RequestId& request) const {
  return core_.read<std::optional<JobArray>>(
      [&](Connection& db) -> Result<std::optional<JobArray>> {
        std::optional<Result<JobArray>> answer = find_request_array(db, request);
        if (!answer) return std::optional<JobArray>();
        if (!answer->ok()) return std::move(*answer).error();
        return std::optional<JobArray>(**std::move(answer));
      });
}

void ArrayStore::steer(std::string project, std::string id, Steering steering,
                       Done<JobArray> done) {
  walk_on(core_, std::make_shared<Walk>(
                     Walk{std::move(project), std::move(id), steering, std::move(done)}));
}

Result<RemovedMembers> ArrayStore::remove_some(const std::string& project, const std::string& id) {
  return core_.change_and_wait<RemovedMembers>(
      [=](WriteContext& context) { return remove_piece(context, project, id); },
      Urgency::kEssential);
}

Result<JobArray> ArrayStore::find(const std::string& project, const std::string& id) const {
  return core_.read<JobArray>([&](Connection& db) { return get_array(db, project, id); });
}

Result<ArrayPage> ArrayStore::list(const ArrayQuery& query) const {
  ASSIGN_OR_RETURN(const int64_t page_size, page_size_of(query.page_size));
  const std::string signed_query = "arrays " + query.project;
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!query.page_token.empty()) {
    ASSIGN_OR_RETURN(before, read_page_token(core_.page_token_key, signed_query, query.page_token));
  }
  return core_.read<ArrayPage>([&](Connection& db) -> Result<ArrayPage> {
    ArrayPage page;
    page.arrays = read_arrays(db, query.project, before, page_size + 1);
    if (std::ssize(page.arrays) > page_size) {
      page.arrays.pop_back();
      page.next_page_token =
          make_page_token(core_.page_token_key, signed_query, page.arrays.back().order);
    }
    return page;
  });
}

}  // namespace trainyard::server
