// trainyard explain: says in sentences what happened to a job and why.
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/explanation.h"
#include "client/cli/job_view.h"
#include "client/cli/relative_name.h"
#include "client/cli/time_range.h"
#include "client/lib/metric_history.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

std::string render(const Explanation& e, const v1::Job& job, const Terminal& out_to) {
  const bool colour = out_to.colour();
  const int width = out_to.line_width();
  constexpr int kIndent = 2;
  const auto indented = [&](const std::string& text, int indent) {
    return wrapped(safe_text(text), width, indent, indent);
  };
  const auto title = [&](const char* text) { return paint(colour, Style::kDim, text) + "\n"; };
  std::string out = safe_text(std::string(relative_name(job.name()))) + "\n" + "  " +
                    indented(e.now, kIndent) + "\n" + title("What happened");
  for (const Explanation::Chapter& chapter : e.story) {
    const std::string time = local_time(chapter.time);
    out += "  " + paint(colour, Style::kDim, time) + "  " +
           indented(chapter.text, 2 * kIndent + display_width(time)) + "\n";
  }
  const auto list = [&](const char* heading, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out += title(heading);
    for (const std::string& line : lines) out += "  " + indented(line, kIndent) + "\n";
  };
  list("What is kept", e.kept);
  list("What to do", e.to_do);
  return out;
}

std::string explanation_json(const Explanation& e, const v1::Job& job) {
  nlohmann::ordered_json story = nlohmann::ordered_json::array();
  for (const Explanation::Chapter& chapter : e.story) {
    story.push_back({{"time_seconds", chapter.time.seconds()}, {"text", chapter.text}});
  }
  return nlohmann::ordered_json{{"name", job.name()},     {"state", v1::JobState_Name(job.state())},
                                {"reason", job.reason()}, {"now", e.now},
                                {"story", story},         {"kept", e.kept},
                                {"to_do", e.to_do}}
      .dump();
}

/// Returns text such as " It is number 3 in the queue, and expected to start in 5 min and to end in
/// 20 min." Empty if the server does not know the position.
std::string queue_text(client::Client& server, const v1::Job& job) {
  v1::ListQueueRequest request;
  request.set_parent(std::string(client::parent_of(job.name())));
  request.set_name(job.name());
  const Result<v1::ListQueueResponse> queue = server.call(client::rpc::kListQueue, request);
  if (!queue.ok() || queue->jobs_size() == 0 || queue->jobs(0).position() == 0) return "";
  const v1::QueuedJob& queued = queue->jobs(0);
  const int64_t now_s = std::time(nullptr);
  std::string text = " It is number " + std::to_string(queued.position()) + " of " +
                     std::to_string(queue->waiting()) + " in the queue";
  if (queued.has_start()) text += ", and expected to start " + when(queued.start(), now_s);
  if (queued.has_end()) text += " and to end " + when(queued.end(), now_s);
  return text + ".";
}

Result<int> run_explain(Session& session, const std::string& text) {
  ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  Explainer explainer;
  Result<v1::Job> read =
      client::read_events(*server, name, /*follow=*/false, stop, [&](const v1::Event& event) {
        explainer.add(event);
        return true;
      });
  if (!read.ok()) return point_to_array(*server, name, std::move(read).error(), "get");
  const v1::Job& job = *read;
  if (stop.stop_requested()) return static_cast<int>(client::kExitInterrupted);
  note_thinned(session, job);
  Explanation explanation = explainer.explain(job);
  if (job.state() == v1::QUEUED) explanation.now += queue_text(*server, job);
  if (const std::string array = array_text(job); !array.empty()) {
    explanation.now += " It is a member of the array " + array + ".";
  }
  if (session.format() == Format::kName) {
    session.out().line(job.name());
  } else if (session.machine()) {
    session.out().line(explanation_json(explanation, job));
  } else {
    session.out().write(render(explanation, job, session.out()));
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command explain_command() {
  auto name = std::make_shared<std::string>();
  return {"explain",
          "Explain what happened to a job: attempts, why it waits or failed, what to do",
          {"trainyard explain digits-1", "trainyard explain digits-1 -o json | jq -r .now"},
          "",
          [name](OptionSet& options) { options.positional("JOB", *name, "the job's name"); },
          [name](Session& session) { return run_explain(session, *name); }};
}

}  // namespace trainyard::cli
