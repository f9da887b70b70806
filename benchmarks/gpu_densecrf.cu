// The CUDA dense CRF of github.com/heiwang1997/DenseCRF behind C functions: nvcc -DLABELS=8 -I <its include folder>.
// All pointers are of the device; kernels and spreads are those that benchmarks/peers.py gives pydensecrf2.
#include "densecrf_gpu.cuh"

using namespace dcrf_cuda;
using Crf = DenseCRFGPU<LABELS>;

// `energy` is (height, width, LABELS), `image` (height, width, 3) in 0..255; builds both permutohedral lattices.
extern "C" Crf *densecrf_new(int width, int height, const float *energy, const float *image) {
    Crf *crf = new Crf(width * height);
    crf->setUnaryEnergy(energy);
    crf->addPairwiseEnergy(PottsPotentialGPU<LABELS, 2>::FromImage<float>(width, height, 3.0f, 3.0f));
    crf->addPairwiseEnergy(PottsPotentialGPU<LABELS, 5>::FromImage<float>(width, height, 10.0f, 80.0f, image, 13.0f));
    return crf;
}

extern "C" void densecrf_decode(Crf *crf, int iterations, short *labels, int n_sites) {
    crf->inference(iterations, true);
    cudaMemcpyAsync(labels, crf->getMap(), sizeof(short) * n_sites, cudaMemcpyDeviceToDevice);
}

extern "C" void densecrf_free(Crf *crf) { delete crf; }
