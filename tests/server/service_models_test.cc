// Tests of calls to trained models over gRPC: predict, generate and evaluate, in warm workers.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/server/service_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

class ServiceModels : public ServiceTest {
 protected:
  void restart() {
    stop();
    start();
  }
  void train(const std::string& id) {
    if (dataset_.name().empty()) make_dataset();
    submit(id, "");
    wait_for(id, v1::SUCCEEDED);
  }
  struct Answer {
    std::string label;  // the first row's label, or the reason of a refusal
    int64_t batch = 0;  // number of calls that were computed together
    bool warm = false;
  };
  Answer predict(const std::string& id, const std::string& csv) {
    v1::PredictRequest request;
    v1::PredictResponse response;
    request.set_name("projects/default/models/" + id);
    request.set_csv(csv);
    const grpc::Status s = models_->Predict(context().get(), request, &response);
    if (!s.ok()) return {reason_of(s)};
    return {response.predictions(0).label(), response.predictions(0).label_index(),
            response.warm()};
  }
  /// Returns the PID of the worker that serves the model.
  pid_t pid_of(const std::string& id) { return std::stoi(predict(id, "pid").label); }
  static bool ends(pid_t pid) {
    return eventually([&] { return ::kill(pid, 0) != 0; });
  }

  /// Makes calls at the same time and collects their replies.
  class Together {
   public:
    explicit Together(ServiceModels& test) : test_(test) {}
    void predict(const std::string& id, const std::string& csv) {
      const std::lock_guard lock(mu_);
      const size_t i = answers_.size();
      answers_.emplace_back();
      threads_.emplace_back([this, i, id, csv] {
        const Answer answer = test_.predict(id, csv);
        const std::lock_guard own_lock(mu_);
        answers_[i] = answer;
      });
    }
    std::vector<Answer> wait() {
      for (std::thread& t : threads_) t.join();
      return answers_;
    }

   private:
    ServiceModels& test_;
    std::mutex mu_;
    std::vector<Answer> answers_;
    std::vector<std::thread> threads_;
  };
};

TEST_F(ServiceModels, PredictAnswersAndSaysWhetherItWasWarm) {
  train("oracle");
  v1::PredictRequest request;
  v1::PredictResponse response;
  request.set_name("projects/default/models/oracle");
  request.set_csv("5,4,3,2");
  ASSERT_TRUE(models_->Predict(context().get(), request, &response).ok());
  EXPECT_EQ(response.predictions(0).label(), "5,4,3,2");
  EXPECT_FALSE(response.warm());
  EXPECT_GT(response.compute_us(), 0);
  ASSERT_TRUE(models_->Predict(context().get(), request, &response).ok());
  EXPECT_EQ(response.predictions(0).label(), "5,4,3,2");
  EXPECT_TRUE(response.warm());
  EXPECT_EQ(pid_of("oracle"), pid_of("oracle")) << "one process answers all";
  EXPECT_EQ(predict("oracle", "").label, "FIELD_REQUIRED");
  EXPECT_EQ(predict("nothing", "1").label, "MODEL_NOT_FOUND");
}

TEST_F(ServiceModels, ARefusalAffectsOnlyItsCall) {
  train("oracle");
  int64_t together = 0;
  for (int wait_ms = 300; wait_ms < 60'000 && together < 2; wait_ms *= 2) {
    Together calls(*this);
    calls.predict("oracle", "wait " + std::to_string(wait_ms));
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms / 3));
    for (const char* csv : {"a", "refuse", "b"}) calls.predict("oracle", csv);
    const auto answers = calls.wait();
    EXPECT_EQ(answers[1].label, "a");
    EXPECT_EQ(answers[2].label, "DATASET_INVALID");
    EXPECT_EQ(answers[3].label, "b");
    together = std::max(answers[1].batch, answers[3].batch);
  }
  EXPECT_GE(together, 2) << "they came together";
  EXPECT_EQ(predict("oracle", "c").label, "c");
}

TEST_F(ServiceModels, ALostWorkerIsReplaced) {
  train("oracle");
  const pid_t first = pid_of("oracle");
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const pid_t second = pid_of("oracle");
  EXPECT_NE(second, first);
  EXPECT_EQ(predict("oracle", "die once").label, "die once") << "with the call in it";
  EXPECT_TRUE(ends(second));
  EXPECT_EQ(predict("oracle", "die").label, "WORKER_LOST") << "one that kills every worker";
  EXPECT_EQ(predict("oracle", "x").label, "x");
}

TEST_F(ServiceModels, ACallPastItsDeadlineIsStopped) {
  train("oracle");
  config_.predict_timeout_seconds = 1;
  restart();
  EXPECT_EQ(predict("oracle", "slow").label, "PREDICT_TIMEOUT");
  EXPECT_EQ(predict("oracle", "x").label, "x");
}

TEST_F(ServiceModels, WarmWorkersAreBoundedAndEndInTime) {
  train("oracle-1");
  train("oracle-2");
  config_.warm_workers_max = 1;
  restart();
  const pid_t first = pid_of("oracle-1");
  const pid_t second = pid_of("oracle-2");
  EXPECT_TRUE(ends(first)) << "it was evicted";
  EXPECT_EQ(pid_of("oracle-2"), second);
  EXPECT_FALSE(predict("oracle-1", "x").warm);
  EXPECT_TRUE(ends(second));

  config_.warm_idle_seconds = 1;
  restart();
  EXPECT_TRUE(ends(pid_of("oracle-1")));

  config_.warm_idle_seconds = 300;
  config_.warm_memory_bytes_max = 10 << 20;
  restart();
  const pid_t large = pid_of("oracle-1");
  EXPECT_EQ(pid_of("oracle-1"), large);
  EXPECT_EQ(predict("oracle-1", "memory 20000000").label, "memory 20000000");
  EXPECT_TRUE(ends(large));

  config_.warm_workers_max = 0;
  restart();
  const pid_t alone = pid_of("oracle-1");
  EXPECT_TRUE(ends(alone));
  EXPECT_FALSE(predict("oracle-1", "x").warm);
}

TEST_F(ServiceModels, ADeletedModelHasNoWorker) {
  train("oracle");
  const pid_t pid = pid_of("oracle");
  v1::DeleteModelRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/models/oracle");
  ASSERT_TRUE(models_->DeleteModel(context().get(), remove, &empty).ok());
  EXPECT_TRUE(ends(pid));
  EXPECT_EQ(predict("oracle", "x").label, "MODEL_NOT_FOUND");
}

TEST_F(ServiceModels, AStoppingDaemonEndsWarmWorkersAtOnce) {
  stop();
  config_.drain_seconds = 3600;
  start();
  train("oracle");
  const pid_t pid = pid_of("oracle");
  const auto begin = std::chrono::steady_clock::now();
  stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patience()) << "it has an hour to drain";
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(ServiceModels, GenerateStreamsAndEndsWithItsCaller) {
  train("poet-1");
  v1::GenerateRequest request;
  request.set_name("projects/default/models/poet-1");
  const auto generate = [&](std::string* text) {
    auto call = context();
    auto stream = models_->Generate(call.get(), request);
    v1::GenerateResponse piece;
    while (stream->Read(&piece)) *text += piece.text();
    const grpc::Status end = stream->Finish();
    return end.ok() ? std::string() : reason_of(end);
  };
  std::string text;
  request.set_prompt("echo");
  request.set_token_count(1000);
  EXPECT_EQ(generate(&text), "");
  EXPECT_EQ(text.size(), 4000u) << "all of it, in order";
  EXPECT_EQ(text.substr(0, 12), "echoechoecho");
  text.clear();
  request.set_prompt("die");
  EXPECT_EQ(generate(&text), "WORKER_LOST");
  request.set_prompt("");
  EXPECT_EQ(generate(&text), "FIELD_REQUIRED");
  request.set_prompt("echo");
  request.set_token_count(0);
  EXPECT_EQ(generate(&text), "FIELD_OUT_OF_RANGE");
  request.set_token_count(1);
  request.add_prompts("echo");
  EXPECT_EQ(generate(&text), "FIELD_CONFLICT");
  request.clear_prompt();
  request.add_prompts("");
  EXPECT_EQ(generate(&text), "FIELD_REQUIRED");
  for (int i = 0; i < 16; ++i) request.add_prompts("echo");
  EXPECT_EQ(generate(&text), "FIELD_OUT_OF_RANGE");
  request.clear_prompts();
  request.add_messages()->set_content(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(generate(&text), "FIELD_OUT_OF_RANGE");
  request.clear_messages();

  request.set_prompt("die late");
  request.set_token_count(1);
  EXPECT_EQ(generate(&text), "WORKER_LOST") << "what has begun does not begin again";

  // When a caller leaves, its place becomes free.
  request.set_prompt("endless");
  request.set_token_count(1);
  for (int i = 0; i < 3 * config_.predicts_max; ++i) {
    auto call = context();
    auto stream = models_->Generate(call.get(), request);
    v1::GenerateResponse piece;
    ASSERT_TRUE(stream->Read(&piece)) << i << ": " << reason_of(stream->Finish());
    call->TryCancel();
    while (stream->Read(&piece)) continue;
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(ServiceModels, EvaluateAsksForAModelAndADataset) {
  train("judge-1");
  v1::EvaluateRequest request;
  request.set_name("projects/default/models/judge-1");
  request.set_dataset("projects/default/datasets/iris");
  v1::EvaluateResponse response;
  ASSERT_TRUE(models_->Evaluate(context().get(), request, &response).ok());
  EXPECT_EQ(response.row_count(), 120);
  EXPECT_FALSE(response.warm());
  ASSERT_TRUE(models_->Evaluate(context().get(), request, &response).ok());
  EXPECT_TRUE(response.warm());
  request.set_dataset("projects/default/datasets/nothing");
  EXPECT_EQ(reason_of(models_->Evaluate(context().get(), request, &response)), "DATASET_NOT_FOUND");
  request.set_dataset("iris");
  EXPECT_EQ(reason_of(models_->Evaluate(context().get(), request, &response)), "NAME_MALFORMED");
  request.set_name("projects/default/models/nothing");
  EXPECT_EQ(reason_of(models_->Evaluate(context().get(), request, &response)), "MODEL_NOT_FOUND");
}

}  // namespace
}  // namespace trainyard::server
