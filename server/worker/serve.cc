#include "server/worker/serve.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/convert/run.h"
#include "server/worker/outcome.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/inference/evaluate_model.h"
#include "src/inference/generator.h"
#include "src/inference/predictor.h"
#include "src/runtime/open_backend.h"

namespace trainyard {
namespace {

constexpr size_t kReportBytes = 1 << 20;     // answers share a report up to this size
constexpr size_t kAnswerBytesMax = 7 << 20;  // a message may have 8 MiB

/// Returns the resident memory of this process that is not backed by files; 0 if it is not known.
int64_t own_memory_bytes() {
  long long total = 0, resident = 0, shared = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  const int read = std::fscanf(file, "%lld %lld %lld", &total, &resident, &shared);
  std::fclose(file);
  return read == 3 ? (resident - shared) * ::sysconf(_SC_PAGESIZE) : 0;
}

Result<RawRows> read_rows(const DatasetSchema& schema, const v1::PredictRequest& request) {
  switch (request.rows_case()) {
    case v1::PredictRequest::kCsv:
      return parse_raw_rows(schema, "csv", request.csv());
    case v1::PredictRequest::kIdxImages:
      return parse_raw_rows(schema, "idx", request.idx_images());
    case v1::PredictRequest::kText:
      return parse_raw_rows(schema, "text", request.text());
    case v1::PredictRequest::kImages: {
      std::vector<RawImage> images;
      for (const v1::ImageFiles::File& file : request.images().files()) {
        images.push_back({file.name(), file.content()});
      }
      return parse_raw_images(schema, images);
    }
    case v1::PredictRequest::ROWS_NOT_SET:
      break;
  }
  return field_error("FIELD_REQUIRED", "rows",
                     "is missing, expected csv, idx_images, text or images");
}

GenerateOptions options_of(const v1::GenerateRequest& request) {
  GenerateOptions options;
  if (request.has_token_count()) options.tokens = request.token_count();
  Sampling& sampling = options.sampling;
  if (request.has_temperature()) sampling.temperature = request.temperature();
  if (request.has_top_p()) sampling.top_p = request.top_p();
  if (request.has_repetition_penalty()) sampling.repetition_penalty = request.repetition_penalty();
  sampling.min_p = request.min_p();
  sampling.top_k = request.top_k();
  sampling.seed = request.seed();
  options.stop.assign(request.stop().begin(), request.stop().end());
  options.ignore_end = request.ignore_end();
  return options;
}

std::vector<Prompt> prompts_of(const v1::GenerateRequest& request) {
  std::vector<Prompt> prompts;
  for (const std::string& text : request.prompts()) prompts.push_back({.text = text});
  if (!prompts.empty()) return prompts;
  Prompt& prompt = prompts.emplace_back(Prompt{.text = request.prompt()});
  for (const v1::ChatMessage& m : request.messages()) {
    prompt.messages.push_back({m.role(), m.content()});
  }
  return prompts;
}

v1::GenerateResponse to_message(const Continuation& part, bool warm) {
  v1::GenerateResponse message;
  message.set_text(std::string(part.text));
  message.set_token_count(part.tokens);
  message.set_warm(warm);
  message.set_index(static_cast<int32_t>(part.prompt));
  message.set_prompt_token_count(part.prompt_tokens);
  switch (part.finish) {
    case Finish::kNone:
      break;
    case Finish::kEnd:
      message.set_finish(v1::GenerateResponse::END);
      break;
    case Finish::kStopString:
      message.set_finish(v1::GenerateResponse::STOP);
      break;
    case Finish::kLength:
      message.set_finish(v1::GenerateResponse::LENGTH);
      break;
    case Finish::kContext:
      message.set_finish(v1::GenerateResponse::CONTEXT);
      break;
  }
  return message;
}

/// Sends answers as reports, several small ones in one report.
class AnswerSender {
 public:
  explicit AnswerSender(ReportStream& stream) : stream_(stream) {}

  void add(int64_t number, v1::Outcome outcome) {
    if (outcome.ByteSizeLong() > kAnswerBytesMax) {
      outcome = to_outcome(
          field_error("FIELD_OUT_OF_RANGE", "rows",
                      "their predictions take " + std::to_string(outcome.ByteSizeLong()) +
                          " bytes, more than the 7 MiB of an answer; send fewer rows at a time"));
    }
    const size_t bytes = outcome.ByteSizeLong();
    if (bytes_ + bytes > kReportBytes) send();
    bytes_ += bytes;
    v1::ServeAnswer& answer = *report_.mutable_answers()->add_answers();
    answer.set_number(number);
    *answer.mutable_outcome() = std::move(outcome);
  }
  void send() {
    if (report_.answers().answers_size() == 0) return;
    report_.mutable_answers()->set_memory_bytes(own_memory_bytes());
    stream_.send(std::exchange(report_, {}));
    bytes_ = 0;
  }

 private:
  ReportStream& stream_;
  v1::WorkerReport report_;
  size_t bytes_ = 0;
};

class ModelServer {
 public:
  ModelServer(const v1::ServeTask& task, ReportStream& stream, const std::stop_token& stop)
      : folder_(task.model_dir()), stream_(stream), answers_(stream), stop_(stop) {
    stream_.set_on_command([this](const v1::WorkerCommand& command) { take(command); });
    // If the stream breaks, the worker ends, because no further calls would come.
    stream_.set_unreachable_max(std::chrono::milliseconds(0));
  }
  ~ModelServer() { stream_.set_on_command(nullptr); }
  ModelServer(const ModelServer&) = delete;

  Result<v1::Outcome> run(const v1::ServeTask& task) {
    ASSIGN_OR_RETURN(backend_, open_backend("devices/cpu", task.threads()));
    v1::ServeCalls calls = task.first();
    do {
      answer(calls);
      answers_.send();
      if (fault_) return *std::move(fault_);
    } while (next(calls));
    v1::Outcome outcome;
    outcome.set_kind(v1::Outcome::STOPPED);
    return outcome;
  }

 private:
  /// Runs on the stream's reading thread.
  void take(const v1::WorkerCommand& command) {
    const MutexLock lock(mu_);
    if (command.has_serve()) {
      waiting_.push_back(command.serve());
      changed_.notify_all();
    }
    if (command.kind_case() == v1::WorkerCommand::kCancelCall) {
      cancelled_ = command.cancel_call();
      if (cancelled_ == current_) current_stop_.request_stop();
    }
  }

  /// Waits for the next calls; false if a stop is requested.
  bool next(v1::ServeCalls& calls) {
    MutexLock lock(mu_);
    if (!changed_.wait(lock, stop_,
                       [this]() TRAINYARD_REQUIRES(mu_) { return !waiting_.empty(); })) {
      return false;
    }
    calls = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }

  void answer(const v1::ServeCalls& calls) {
    if (calls.calls().empty()) return;
    const v1::ServeCall& first = calls.calls(0);
    switch (first.kind_case()) {
      case v1::ServeCall::kPredict:
        return predict(calls);
      case v1::ServeCall::kGenerate:
        return add(first.number(), outcome_of([&] { return generate(first); }));
      case v1::ServeCall::kEvaluate:
        return add(first.number(), outcome_of([&] { return evaluate(first.evaluate()); }));
      case v1::ServeCall::KIND_NOT_SET:
        break;
    }
    add(first.number(),
        to_outcome(make_error(ErrorCode::kFailedPrecondition, "WORKER_PROTOCOL_ERROR",
                              "the call has an unknown kind")));
  }

  void add(int64_t number, v1::Outcome outcome) {
    if (outcome.kind() == v1::Outcome::FAULT || outcome.kind() == v1::Outcome::DEVICE_FAULT) {
      fault_ = outcome;
    }
    answers_.add(number, std::move(outcome));
  }

  void predict(const v1::ServeCalls& calls) {
    const bool warm = predictor_ != nullptr;
    const v1::Outcome opened = outcome_of([&]() -> Result<v1::Outcome> {
      if (warm) return succeeded();
      ASSIGN_OR_RETURN(predictor_, Predictor::open(folder_, *backend_));
      return succeeded();
    });
    const int64_t begin_us = system_clock().steady_us();
    std::vector<int64_t> numbers;
    std::vector<RawRows> rows;  // of these calls; at most a batch and the rows of one call
    int64_t row_count = 0;
    const auto compute = [&] {
      predict_rows(numbers, rows, warm, begin_us);
      numbers.clear();
      rows.clear();
      row_count = 0;
    };
    for (const v1::ServeCall& call : calls.calls()) {
      if (opened.kind() != v1::Outcome::SUCCEEDED) {
        add(call.number(), opened);
        continue;
      }
      RawRows read;
      v1::Outcome refusal = outcome_of([&]() -> Result<v1::Outcome> {
        ASSIGN_OR_RETURN(read, read_rows(predictor_->schema(), call.predict()));
        return succeeded();
      });
      if (refusal.kind() != v1::Outcome::SUCCEEDED) {
        add(call.number(), std::move(refusal));
        continue;
      }
      row_count += read.rows;
      numbers.push_back(call.number());
      rows.push_back(std::move(read));
      if (row_count >= kPredictBatch) compute();
    }
    if (!rows.empty()) compute();
  }

  /// If the calls fail together, each is computed again alone, so that only the calls that cause
  /// the fault report it.
  void predict_rows(std::span<const int64_t> numbers, std::span<const RawRows> rows, bool warm,
                    int64_t begin_us) {
    std::vector<std::vector<Prediction>> predictions;
    v1::Outcome computed = outcome_of([&]() -> Result<v1::Outcome> {
      predictions = predictor_->predict_together(rows);
      return succeeded();
    });
    if (computed.kind() != v1::Outcome::SUCCEEDED && numbers.size() > 1) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        predict_rows(numbers.subspan(i, 1), rows.subspan(i, 1), warm, begin_us);
      }
      return;
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (computed.kind() != v1::Outcome::SUCCEEDED) {
        add(numbers[i], computed);
        continue;
      }
      add(numbers[i], outcome_of([&]() -> Result<v1::Outcome> {
            v1::Outcome outcome = succeeded();
            *outcome.mutable_predictions() =
                to_proto(predictions[i], rows[i], predictor_->schema());
            outcome.mutable_predictions()->set_warm(warm);
            outcome.mutable_predictions()->set_compute_us(system_clock().steady_us() - begin_us);
            return outcome;
          }));
    }
  }

  Result<v1::Outcome> generate(const v1::ServeCall& call) {
    const v1::GenerateRequest& request = call.generate();
    const GenerateOptions options = options_of(request);
    if (Status s = check_generate(options); !s.ok()) return std::move(s).error();
    const bool warm = generator_ != nullptr;
    if (!warm) {
      ASSIGN_OR_RETURN(generator_, Generator::open(folder_, *backend_));
    }
    std::stop_source call_stop;
    {
      const MutexLock lock(mu_);
      current_ = call.number();
      current_stop_ = call_stop;
      if (cancelled_ == current_) call_stop.request_stop();
    }
    const std::stop_callback with_worker(stop_, [&call_stop] { call_stop.request_stop(); });
    Status done = generator_->generate(prompts_of(request), options, call_stop.get_token(),
                                       [&](const Continuation& part) {
                                         v1::WorkerReport report;
                                         *report.mutable_generated() = to_message(part, warm);
                                         stream_.send(std::move(report));
                                       });
    {
      const MutexLock lock(mu_);
      current_ = 0;
    }
    if (!done.ok()) return std::move(done).error();
    return succeeded();
  }

  Result<v1::Outcome> evaluate(const v1::ServeCall::EvaluateCall& call) {
    const v1::EvaluateRequest& request = call.request();
    const bool warm = evaluator_ != nullptr;
    if (!warm) {
      ASSIGN_OR_RETURN(evaluator_, ModelEvaluator::open(folder_, *backend_));
    }
    const int64_t begin_us = system_clock().steady_us();
    const std::string partition = request.rows() == v1::EvaluateRequest::TEST    ? "test"
                                  : request.rows() == v1::EvaluateRequest::TRAIN ? "train"
                                                                                 : "";
    ASSIGN_OR_RETURN(const ModelEvaluation evaluation,
                     evaluator_->evaluate(call.dataset_dir(), partition,
                                          {request.metrics().begin(), request.metrics().end()}));
    v1::Outcome outcome = succeeded();
    *outcome.mutable_evaluation() = to_proto(evaluation);
    outcome.mutable_evaluation()->set_warm(warm);
    outcome.mutable_evaluation()->set_compute_us(system_clock().steady_us() - begin_us);
    return outcome;
  }

  const std::filesystem::path folder_;
  ReportStream& stream_;
  AnswerSender answers_;
  const std::stop_token stop_;
  std::unique_ptr<Backend> backend_;  // outlives the objects that use it
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<ModelEvaluator> evaluator_;
  std::optional<v1::Outcome> fault_;

  Mutex mu_;
  CondVar changed_;
  std::deque<v1::ServeCalls> waiting_ TRAINYARD_GUARDED_BY(mu_);
  int64_t current_ TRAINYARD_GUARDED_BY(mu_) = 0;    // number of the running generation; 0: none
  int64_t cancelled_ TRAINYARD_GUARDED_BY(mu_) = 0;  // newest cancelled call; may not have begun
  std::stop_source current_stop_ TRAINYARD_GUARDED_BY(mu_);
};

}  // namespace

Result<v1::Outcome> run_serve(const v1::ServeTask& task, ReportStream& stream,
                              const std::stop_token& stop) {
  ModelServer server(task, stream, stop);
  return server.run(task);
}

}  // namespace trainyard
