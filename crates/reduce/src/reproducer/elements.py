wrong = ~((np.abs(found - expected) <= allowed) | (found == expected) | np.isnan(expected) & np.isnan(found))
for at in map(tuple, np.argwhere(wrong)[:10].tolist()):
    print(f"{at}: expected {expected[at]:.9g}, found {found[at]:.9g}, allowed error {allowed[at]:.3g}")
sys.exit(f"{wrong.sum()} of {wrong.size} elements are wrong" if wrong.any() else 0)
