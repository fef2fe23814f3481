"""Finds the polynomials of this folder and of `tile-ir/src/ops/library/*.tl`: `pip install mpmath; python3 fit.py`, some minutes.

For each of them it prints the function and its variable, the interval, the error of the minimax polynomial and of the
rounded one, and the coefficients. Coefficients are rounded one by one, the constant first, and after each of the first
`refit` the rest is fitted again to what is left.
"""

from mpmath import (asin, atan, atanh, cos, cosh, erf, erfc, erfinv, exp, expm1, frexp, ldexp, log, loggamma, lu_solve, matrix, mp, mpf,
                    nint, pi, sin, sinh, sqrt, tanh)

mp.dps = 45


def rounded(x, bits):
    mantissa, exponent = frexp(x)
    return ldexp(nint(ldexp(mantissa, bits)), exponent - bits)


def extremes(error, count):
    """The places of the largest errors of alternating sign, `count` of them."""
    found, start = [], 0
    while start < len(error):
        end = start
        while end < len(error) and (error[end] > 0) == (error[start] > 0):
            end += 1
        found.append(max(range(start, end), key=lambda i: abs(error[i])))
        start = end
    while len(found) > count:
        if len(found) == count + 1:
            found.pop(0 if abs(error[found[0]]) < abs(error[found[-1]]) else -1)
            continue
        least = min(range(len(found)), key=lambda k: abs(error[found[k]]))
        if least not in (0, len(found) - 1):
            other = min((least - 1, least + 1), key=lambda k: abs(error[found[k]]))
            found.pop(max(least, other))
            least = min(least, other)
        found.pop(least)
    return found


def remez(values, basis, weights):
    """The coefficients with the least largest weighted error on a grid, and that error."""
    size, count = len(values), len(basis)
    at = [int((size - 1) * (1 - cos(pi * i / count)) / 2) for i in range(count + 1)]
    best = None
    for _ in range(40):
        system = matrix(count + 1, count + 1)
        for row, i in enumerate(at):
            for k in range(count):
                system[row, k] = basis[k][i]
            system[row, count] = (-1) ** row / weights[i]
        try:
            solution = lu_solve(system, matrix([values[i] for i in at]))
        except ZeroDivisionError:
            break
        fit = [solution[k] for k in range(count)]
        error = [w * (v - sum(c * b[i] for c, b in zip(fit, basis))) for i, (v, w) in enumerate(zip(values, weights))]
        largest = max(abs(e) for e in error)
        if best is None or largest < best[1]:
            best = (fit, largest)
        at = extremes(error, count + 1)
        if len(at) <= count or largest <= abs(solution[count]) * mpf("1.02"):
            break
    return best


def show(name, function, interval, weight, bits, powers, refit=5):
    low, high = map(mpf, interval)
    powers = list(powers)
    size = 30 * len(powers) + 60
    grid = [(low + high) / 2 - (high - low) / 2 * cos(pi * (i + mpf(1) / 2) / size) for i in range(size)]
    left, weights = [function(x) for x in grid], [weight(x) for x in grid]
    basis = [[x**power for x in grid] for power in powers]
    found, first = [], None
    for k in range(len(powers)):
        if k < refit:
            (fit, error), start = remez(left, basis[k:], weights), k
            first = first or error
        coefficient = rounded(fit[k - start], bits)
        found.append(coefficient)
        left = [value - coefficient * b for value, b in zip(left, basis[k])]
    last = max(abs(w * value) for w, value in zip(weights, left))
    print(f"{name} for f{32 if bits == 24 else 64}, {float(low):.6g} to {float(high):.6g}: 2^{float(log(first, 2)):.1f}, "
          f"rounded 2^{float(log(last, 2)):.1f}", *(f"    {float(c)!r}" for c in found), sep="\n", flush=True)


def in_square(function):
    """A function of the square of its variable."""
    return lambda u: function(sqrt(u))


LN_2 = log(2)
SIN = in_square(lambda x: (sin(x) / x - 1) / x**2), in_square(lambda x: x**3 / sin(x))
COS = in_square(lambda x: (cos(x) - 1 + x**2 / 2) / x**4), in_square(lambda x: x**4 / cos(x))
TANH = in_square(lambda x: (tanh(x) / x - 1) / x**2), in_square(lambda x: x**3 / tanh(x))
ERF = in_square(lambda x: erf(x) / x - 1), in_square(lambda x: x / erf(x))
ERFC = lambda t: log(erfc(t), 2), lambda t: erfc(t) * LN_2
EXP = lambda r: (exp(r) - 1 - r) / r**2, lambda r: r**2 * exp(-r)
EXP2 = lambda f: (2**f - 1) / f, lambda f: abs(f) * 2**-f
LOG = lambda f: (log(1 + f) - f) / f**2, lambda f: f**2 / abs(log(1 + f))
LOG2 = lambda f: log(1 + f, 2) / f - 1, lambda f: f / log(1 + f, 2)
SINH = in_square(lambda x: (sinh(x) / x - 1) / x**2), in_square(lambda x: x**3 / sinh(x))
COSH = in_square(lambda x: (cosh(x) - 1) / x**2), in_square(lambda x: x**2 / sinh(x))
ATAN = in_square(lambda x: (atan(x) / x - 1) / x**2), in_square(lambda x: x**3 / atan(x))
ASIN = in_square(lambda x: (asin(x) / x - 1) / x**2), in_square(lambda x: x**3 / asin(x))
POW = in_square(lambda s: ((3 * atanh(s) / s - 3) / s**2 - 1) / s**2), lambda w: w**2 / 3
ATANH = in_square(lambda s: (2 * atanh(s) / s - 2) / s**2), lambda w: w / 2

def erfinv_in_log(w):
    """`erfinv(x) / x` in `w = -log(1 - x^2)`."""
    x = sqrt(-expm1(-w))
    if x < mpf("0.9"):
        return erfinv(x) / x
    rest = exp(-w) / (1 + x)
    y = sqrt(w)
    for _ in range(60):
        y += log(erfc(y) / rest) * erfc(y) * sqrt(pi) / 2 * exp(y * y)
    return y / x


ERFINV = erfinv_in_log, lambda w: 1 / erfinv_in_log(w)
ERFINV_FAR = lambda t: erfinv_in_log((t + 3) ** 2), lambda t: 1 / erfinv_in_log((t + 3) ** 2)


def lgamma_near(u):
    z = u + mpf(1) / 2
    return loggamma(1 + z).real / (z * (z - 1))


def stirling_rest(w):
    """Of `a` with `w = 1 / a^2`, times `a`."""
    a = 1 / sqrt(w)
    return (loggamma(a) - ((a - mpf(1) / 2) * (log(a) - 1) - mpf(1) / 2 + log(2 * pi) / 2)) * a


LGAMMA = lgamma_near, lambda u: 1 / lgamma_near(u)
STIRLING = stirling_rest, lambda w: 12
SINPI = in_square(lambda r: (sin(pi * r) / (pi * r) - 1) / r**2), in_square(lambda r: pi * r**3 / sin(pi * r))

octave = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1
s = octave[1] / (2 + octave[1]) * mpf("1.001")


def fit_f32():
    half, quarter = LN_2 / 2 * mpf("1.003"), (pi / 4 * mpf("1.004")) ** 2
    show("exp", EXP[0], (-half, half), EXP[1], 24, range(5))
    show("exp2", EXP2[0], ("-0.5005", "0.5005"), EXP2[1], 24, range(6))
    show("log", LOG[0], octave, LOG[1], 24, range(9))
    show("log2", LOG2[0], octave, LOG2[1], 24, range(10), refit=4)
    show("sin", SIN[0], ("1e-6", quarter), SIN[1], 24, range(3))
    show("cos", COS[0], ("1e-6", quarter), COS[1], 24, range(3))
    show("tanh", TANH[0], ("1e-6", 1), TANH[1], 24, range(7), refit=7)
    show("erf, near", ERF[0], ("1e-6", mpf("0.85") ** 2), ERF[1], 24, range(6), refit=6)
    show("erf, far", ERFC[0], ("0.85", "3.95"), ERFC[1], 24, range(1, 8), refit=7)
    show("sinh", SINH[0], ("1e-6", half**2), SINH[1], 24, range(2))
    show("cosh", COSH[0], ("1e-6", half**2), COSH[1], 24, range(3))
    show("atan", ATAN[0], ("1e-6", 1), ATAN[1], 24, range(9), refit=9)
    show("asin", ASIN[0], ("1e-6", mpf("0.5625") ** 2), ASIN[1], 24, range(6))
    show("pow", POW[0], ("1e-7", s**2), POW[1], 24, range(3))
    show("erfinv, near", ERFINV[0], ("1e-6", 5), ERFINV[1], 24, range(11), refit=11)
    show("erfinv, far", ERFINV_FAR[0], (sqrt(mpf(5)) - mpf("3.001"), "1.01"), ERFINV_FAR[1], 24, range(11), refit=11)
    show("erfinv, far, of f64", ERFINV_FAR[0], (sqrt(mpf(5)) - 3, "3.1"), ERFINV_FAR[1], 24, range(11), refit=11)

    show("lgamma, near", LGAMMA[0], ("-0.751", "0.751"), LGAMMA[1], 24, range(14))
    show("lgamma, far", STIRLING[0], ("1e-9", 1 / mpf("6.2") ** 2), STIRLING[1], 24, range(2))
    show("sinpi", SINPI[0], ("1e-9", "0.2501"), SINPI[1], 24, range(4), refit=4)


def fit_f64():
    half, quarter = LN_2 / 2 * mpf("1.001"), (pi / 4 * mpf("1.0001")) ** 2
    show("exp", EXP[0], (-half, half), EXP[1], 53, range(10))
    show("exp2", EXP2[0], ("-0.5001", "0.5001"), EXP2[1], 53, range(11))
    show("log", ATANH[0], ("1e-9", s**2), ATANH[1], 53, range(7))
    show("sin", SIN[0], ("1e-7", quarter), SIN[1], 53, range(6), refit=4)
    show("cos", COS[0], ("1e-5", quarter), COS[1], 53, range(6), refit=4)
    show("tanh", TANH[0], ("1e-7", mpf("0.625") ** 2), TANH[1], 53, range(11))
    show("erf, near", ERF[0], ("1e-9", 1), ERF[1], 53, range(12))
    show("erf, far", ERFC[0], (1, "5.95"), ERFC[1], 53, range(1, 18), refit=8)
    show("sinh", SINH[0], ("1e-7", half**2), SINH[1], 53, range(5))
    show("cosh", COSH[0], ("1e-7", half**2), COSH[1], 53, range(6))
    show("atan", ATAN[0], ("1e-7", 1), ATAN[1], 53, range(20), refit=6)
    show("asin", ASIN[0], ("1e-7", mpf("0.5625") ** 2), ASIN[1], 53, range(14))
    show("pow", POW[0], ("1e-7", s**2), POW[1], 53, range(8), refit=3)
    show("lgamma, near", LGAMMA[0], ("-0.751", "0.751"), LGAMMA[1], 53, range(29))
    show("lgamma, far", STIRLING[0], ("1e-12", 1 / mpf("6.2") ** 2), STIRLING[1], 53, range(7))
    show("sinpi", SINPI[0], ("1e-9", "0.2501"), SINPI[1], 53, range(8))


fit_f32()
fit_f64()
