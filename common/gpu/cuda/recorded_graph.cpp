// Stream capture: the stream records work instead of running it.
#include "common/gpu/cuda/recorded_graph.h"

#include "common/error.h"
#include "common/gpu/cuda/check.h"

namespace lab::cuda {
namespace {

class RecordedGraph final : public RecordedWork {
 public:
  RecordedGraph(Context& context, cudaGraphExec_t graph, std::unique_ptr<RecordingMemory> memory)
      : context_(context), memory_(std::move(memory)), graph_(graph) {}
  ~RecordedGraph() override { static_cast<void>(cudaGraphExecDestroy(graph_)); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  void repeat() override {
    context_.activate();
    check(cudaGraphLaunch(graph_, context_.stream()), "cudaGraphLaunch", "repeating recorded work");
  }

 private:
  Context& context_;
  std::unique_ptr<RecordingMemory> memory_;
  cudaGraphExec_t graph_;
};

/// The stream records from here to finish(). An exception ends the recording, too. Relaxed: this
/// thread may request memory meanwhile, for itself or in a library.
class Capture {
 public:
  explicit Capture(Context& context) : context_(context) {
    check(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeRelaxed),
          "cudaStreamBeginCapture", "starting to record");
    context.set_recording(true);
  }
  ~Capture() {
    if (!context_.recording()) return;
    cudaGraph_t dropped = nullptr;
    static_cast<void>(end(&dropped));
    if (dropped != nullptr) static_cast<void>(cudaGraphDestroy(dropped));
    static_cast<void>(cudaGetLastError());
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t finish() {
    cudaGraph_t graph = nullptr;
    check(end(&graph), "cudaStreamEndCapture", "recording");
    return graph;
  }

 private:
  cudaError_t end(cudaGraph_t* graph) {
    context_.set_recording(false);
    return cudaStreamEndCapture(context_.stream(), graph);
  }

  Context& context_;
};

}  // namespace

std::unique_ptr<RecordedWork> record_graph(Context& context, const std::function<void()>& work) {
  require(!context.recording(),
          "record: work is being recorded already; record one after the other");
  auto memory = std::make_unique<RecordingMemory>(context.memory());
  Capture capture(context);
  work();
  cudaGraph_t graph = capture.finish();
  memory->close();

  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(status, "cudaGraphInstantiate", "preparing recorded work");
  auto recorded = std::make_unique<RecordedGraph>(context, executable, std::move(memory));
  check(cudaGraphUpload(executable, context.stream()), "cudaGraphUpload",
        "preparing recorded work");
  return recorded;
}

}  // namespace lab::cuda
